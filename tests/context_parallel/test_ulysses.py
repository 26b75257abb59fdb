"""Ulysses beside torch's attention of whole sequences; what is sent; heads that do not fit; and a mistake in it."""

import functools

import pytest
import torch

from dtlearn.context_parallel import ulysses as module
from dtlearn.context_parallel.ulysses import ulysses_attention
from tests.context_parallel.parity import HEADS, TOLERANCE, B, D, T, difference
from tests.context_parallel.test_ring import CASES, SIZES
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups


def exchanged(heads, layout, is_causal, group):
    attention = functools.partial(ulysses_attention, layout=layout, is_causal=is_causal, group=group)
    return difference(attention, heads, layout=layout, is_causal=is_causal, group=group)


def parity():
    return in_groups(lambda group: {case: exchanged(*case, group) for case in CASES}, SIZES)


def in_the_order_of_ranks():
    """Sabotage: tokens stay as they come, zigzag ones one rank after the other, under a causal mask."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "global_order", lambda length, *_, device: torch.arange(length, device=device))
        return exchanged("mha", "zigzag", True, None)


def refused():
    q, three = torch.ones(1, 4, 2, 4), torch.ones(1, 3, 2, 4)
    return (
        message_of(lambda: ulysses_attention(three, three, three)),
        message_of(lambda: ulysses_attention(torch.ones(1, 12, 2, 4), three, three)),
        message_of(lambda: ulysses_attention(q[:, :, :1], q[:, :, :1], q[:, :, :1])),
    )


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
    """q, k, v and the output, and the same backward; fewer key-value heads than ranks are copied."""
    expected = []
    for heads, _, _ in CASES:
        of_q, of_kv = (B * h * T // size * D * 8 for h in (HEADS[heads][0], max(HEADS[heads][1], size)))
        forward = [of_q, of_kv, of_kv, of_q]
        expected += [("all_to_all_single", nbytes) for nbytes in forward + sorted(forward)]
    found = calls_of(run.record, size)
    if size == 1:
        assert found == []
        return
    assert len(found) == len(expected)
    for first in range(0, len(found), 8):  # in backward, autograd decides which of q, k and v is first
        assert found[first : first + 4] == expected[first : first + 4]
        assert sorted(found[first + 4 : first + 8]) == expected[first + 4 : first + 8]


def test_in_the_order_of_ranks_it_fails():
    assert max(run_ranks(in_the_order_of_ranks, 2, device="cpu").values) > 0.1


def test_heads_that_do_not_fit_are_refused():
    for query_heads, kv_heads, tokens in run_ranks(refused, 4, device="cpu"):
        assert query_heads.startswith("ValueError: 3 query heads cannot be divided among 4 ranks")
        assert kv_heads.startswith("ValueError: 3 key-value heads cannot be divided among 4 ranks")
        assert "got 4 tokens" in tokens and "Pad the sequence to 8" in tokens
