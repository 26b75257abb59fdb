"""Autograd twice is right, and costs what it says: matrix products, and memory until W."""

import pytest
import torch
from torch import nn

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.pipeline_parallel.runner.naive_split import NaiveSplitStage
from dtlearn.pipeline_parallel.runner.stage import PipelineStage
from tests.pipeline_parallel.runs import MatrixProducts

LAYERS, ROWS, WIDTH = 3, 4, 8
TENSOR = ROWS * WIDTH * 8


def stage_of(kind, is_first=False):
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    options = {"splits_backward": True} if kind is PipelineStage else {}
    return kind(nn.Sequential(*layers).double(), is_first=is_first, **options)


def run(stage):
    """The gradient of the inputs; matrix products in I and in W; bytes kept after F, and between I and W."""
    torch.manual_seed(1)
    inputs, gradient = torch.randn(2, ROWS, WIDTH, dtype=torch.float64).unbind()
    inputs, gradient, flops, kept = inputs.clone(), gradient.clone(), [], []
    with StorageLedger() as ledger:
        stage.forward(0, inputs)
        kept.append(ledger.now)
        with MatrixProducts() as counter:
            found = stage.backward_inputs(0, gradient)
        flops.append(counter.count)
        kept.append(ledger.now - (0 if found is None else found.nbytes))
        with MatrixProducts() as counter:
            stage.backward_weights(0)
        flops.append(counter.count)
    return found, flops, kept


@pytest.mark.parametrize("is_first", [False, True])
def test_it_is_the_other_split_with_more_products(is_first):
    naive, real = stage_of(NaiveSplitStage, is_first), stage_of(PipelineStage, is_first)
    (a, naive_flops, _), (b, real_flops, _) = run(naive), run(real)
    assert a is b is None if is_first else torch.allclose(a, b, rtol=0, atol=1e-12)
    for one, other in zip(naive.module.parameters(), real.module.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=0, atol=1e-12)
    assert naive.num_live == real.num_live == 0
    if is_first:  # there is no gradient of the inputs: all of it can wait
        assert naive_flops == [0, 2 * LAYERS - 1] and real_flops == [LAYERS - 1, LAYERS]
    else:
        assert naive_flops == [LAYERS, 2 * LAYERS - 1] and real_flops == [LAYERS, LAYERS]


def test_it_keeps_all_activations_until_the_weights():
    """The inputs are there before. GELU keeps what it gets: of each layer two tensors, of which W needs one, and dy."""
    _, _, naive = run(stage_of(NaiveSplitStage))
    _, _, real = run(stage_of(PipelineStage))
    assert naive == [(2 * LAYERS - 1) * TENSOR] * 2
    assert real == [(2 * LAYERS - 1) * TENSOR, (LAYERS - 1 + LAYERS) * TENSOR]
