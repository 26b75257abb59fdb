"""All-gather attention beside torch's of whole sequences; what is sent; without the sum over the ranks it fails."""

import functools

import pytest

from dtlearn.context_parallel import all_gather as module
from dtlearn.context_parallel.all_gather import all_gather_attention
from tests.context_parallel.parity import HEADS, TOLERANCE, B, D, T, difference
from tests.context_parallel.test_ring import CASES, SIZES
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups


def gathered(heads, layout, is_causal, group):
    attention = functools.partial(all_gather_attention, layout=layout, is_causal=is_causal, group=group)
    return difference(attention, heads, layout=layout, is_causal=is_causal, group=group)


def parity():
    return in_groups(lambda group: {case: gathered(*case, group) for case in CASES}, SIZES)


def without_sum():
    """Sabotage: a rank keeps its own term of the gradients of its keys."""
    whole = module.gather_from

    def gather_from(x, dim, *, partial_gradients, group):
        return whole(x, dim, partial_gradients=False, group=group)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "gather_from", gather_from)
        return gathered("mha", "zigzag", True, None)


@pytest.fixture(scope="module")
def run():
    return run_ranks(parity, 4, device="cpu", record=True)


def test_it_is_attention_of_the_whole_sequence(run):
    for of_sizes in run.values:
        for size, found in of_sizes.items():
            assert len(found) == 12 and max(found.values()) < TOLERANCE, (size, found)


def test_it_is_on_another_device(other_device):
    for found in run_ranks(parity, 2, device=other_device):
        assert max(found[2].values()) < TOLERANCE


@pytest.mark.parametrize("size", SIZES)
def test_calls_and_bytes(run, size):
    expected = []
    for heads, _, _ in CASES:
        nbytes = 2 * B * HEADS[heads][1] * T * D * 8
        expected += [("all_gather_into_tensor", nbytes // size), ("reduce_scatter_tensor", nbytes)]
    assert calls_of(run.record, size) == (expected if size > 1 else [])


def test_without_the_sum_it_fails():
    assert min(run_ranks(without_sum, 2, device="cpu").values) > 0.1
