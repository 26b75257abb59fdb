"""Segments of k layers: their peak by formula and by the ledger, and where it is lowest."""

import pytest
import torch

from dtlearn.memory import StorageLedger
from dtlearn.memory.arithmetic.activations import gpt_block, table_bytes
from dtlearn.memory.recomputation.every_k import checkpoint_every, segment_peak, segments
from dtlearn.models import GPT, GPTConfig

BATCH, LENGTH = 3, 10


def test_segments():
    assert [list(segment) for segment in segments(5, 2)] == [[0, 1], [2, 3], [4]]
    assert [list(segment) for segment in segments(3, 3)] == [[0, 1, 2]]


@pytest.fixture(scope="module")
def blocks():
    """12 blocks whose gradients are there already, so that no peak holds new ones."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(48, 16, 12, 4, 32))
    for block in model.blocks:
        block(torch.zeros(1, LENGTH, 32)).sum().backward()
    return model.blocks


def backward_peak(blocks, k):
    """Bytes at the peak of backward, and the gradient of the input."""
    x = torch.randn(BATCH, LENGTH, 32, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with StorageLedger() as ledger:
        y = checkpoint_every(blocks, x, k)
        ledger.peak = ledger.now
        y.sum().backward()
    return ledger.peak, x.grad


def test_the_peak_is_the_formula_and_what_backward_of_one_layer_takes(blocks):
    layer_bytes, input_bytes = (
        table_bytes(gpt_block(GPTConfig(48, 16, 12, 4, 32), BATCH, LENGTH)),
        4 * BATCH * LENGTH * 32,
    )
    results = {k: backward_peak(blocks, k) for k in (1, 2, 3, 4, 6, 12)}
    rest = {k: peak - segment_peak(12, k, layer_bytes, input_bytes) for k, (peak, _) in results.items()}
    assert len(set(rest.values())) == 1 and rest[1] < layer_bytes
    assert all(torch.equal(gradient, results[12][1]) for _, gradient in results.values())


def test_a_shorter_last_segment(blocks):
    layer_bytes, input_bytes = (
        table_bytes(gpt_block(GPTConfig(48, 16, 12, 4, 32), BATCH, LENGTH)),
        4 * BATCH * LENGTH * 32,
    )
    assert segment_peak(12, 5, layer_bytes, input_bytes) == input_bytes + 5 * layer_bytes  # the last but one
    more = backward_peak(blocks, 5)[0] - backward_peak(blocks, 12)[0]
    formula = segment_peak(12, 5, layer_bytes, input_bytes) - segment_peak(12, 12, layer_bytes, input_bytes)
    assert abs(more - formula) <= input_bytes  # the gradient between the segments, too


def best_k(num_layers, layer_bytes, input_bytes):
    """The k with the lowest peak; the smallest of several."""
    return min(range(1, num_layers + 1), key=lambda k: segment_peak(num_layers, k, layer_bytes, input_bytes))


@pytest.mark.parametrize("num_layers", [4, 9, 16, 25, 64, 100, 144])
def test_the_optimum_is_near_the_root_where_layers_keep_their_input_only(num_layers):
    k = best_k(num_layers, 1, 1)
    assert abs(k - num_layers**0.5) <= 2
    assert segment_peak(num_layers, k, 1, 1) <= 2 * num_layers**0.5


def test_the_optimum_for_our_gpt():
    layer_bytes, input_bytes = table_bytes(gpt_block(GPTConfig(), 4, 64)), 4 * 4 * 64 * 64
    best = {num_layers: best_k(num_layers, layer_bytes, input_bytes) for num_layers in (4, 12, 32, 33, 96, 128)}
    assert best == {4: 1, 12: 1, 32: 1, 33: 2, 96: 2, 128: 3}


@pytest.mark.parametrize("k", [0, 5])
def test_bad_input(k):
    with pytest.raises(ValueError, match=f"k must be between 1 and the number of layers, 4; got {k}"):
        segments(4, k)
    with pytest.raises(ValueError, match="a layer keeps its input too"):
        segment_peak(4, 1, 1, 2)
