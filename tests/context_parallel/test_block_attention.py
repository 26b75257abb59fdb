"""Parts of attention, merged, beside the whole; in backward the whole's log-sum-exp; no NaN where all is masked."""

import math

import pytest
import torch

from dtlearn.context_parallel import block_attention as module
from dtlearn.context_parallel.block_attention import (
    PartialAttention,
    attend,
    attend_backward,
    attend_backward_plainly,
    attend_plainly,
    check_tensors,
    merge,
)
from tests.context_parallel.parity import HEADS, T, tensors, whole
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks

WAYS = {"kernel": (attend, attend_backward), "plain": (attend_plainly, attend_backward_plainly)}
CUT = 5  # keys of the first part


def in_parts(way, heads, is_causal, dtype=torch.float64):
    """Output and gradients from two parts of the keys; causal: of queries CUT to T."""
    forward, backward = WAYS[way]
    q, k, v, gradient = tensors(*HEADS[heads], dtype)
    expected = whole(*(x.double() for x in (q, k, v, gradient)), is_causal)
    if not is_causal:
        parts = [(slice(0, CUT), False), (slice(CUT, T), False)]
        queries = slice(0, T)
    else:
        parts, queries = [(slice(0, CUT), False), (slice(CUT, T), True)], slice(CUT, T)
    q, gradient = q[:, :, queries], gradient[:, :, queries]
    found = [forward(q, k[:, :, keys], v[:, :, keys], is_causal=causal) for keys, causal in parts]
    total = merge(*found)
    assert total.lse.dtype == total.out.dtype == module.accumulation_dtype(dtype)
    assert torch.allclose(merge(*reversed(found)).out, total.out)  # in any order
    total = total._replace(out=total.out.to(dtype))
    terms = [backward(gradient, q, k[:, :, keys], v[:, :, keys], total, is_causal=causal) for keys, causal in parts]
    of_q = sum(term[0] for term in terms)
    differences = [total.out - expected[0][:, :, queries], of_q - expected[1][:, :, queries]]
    if not is_causal:  # otherwise keys have queries before CUT, too
        differences += [torch.cat([term[i] for term in terms], 2) - expected[i + 1] for i in (1, 2)]
    return max(x.abs().max().item() for x in differences)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("way", WAYS)
def test_two_parts_are_the_whole(way, heads, is_causal):
    assert in_parts(way, heads, is_causal) < 1e-13
    assert in_parts(way, heads, is_causal, torch.float32) < 1e-5
    assert 0 < in_parts(way, heads, is_causal, torch.bfloat16) < 0.1


def on_device():
    return {(heads, causal): in_parts("kernel", heads, causal) for heads in HEADS for causal in (True, False)}


def test_on_another_device(other_device):
    assert max(run_ranks(on_device, 1, device=other_device)[0].values()) < 1e-13


def test_a_query_that_attends_to_nothing_is_no_nan():
    q, k, v, _ = tensors(4, 4)
    part = attend(q, k, v, is_causal=False)
    nothing = PartialAttention(torch.zeros_like(part.out), torch.full_like(part.lse, -math.inf))
    for merged in (merge(part, nothing), merge(nothing, part)):
        assert torch.equal(merged.out, part.out) and torch.equal(merged.lse, part.lse)
    both = merge(nothing, nothing)
    assert torch.equal(both.out, nothing.out) and (both.lse == -math.inf).all()


def test_large_scores_do_not_overflow():
    q, k, v, _ = tensors(4, 4, torch.float32)
    parts = [attend(1e4 * q, k[:, :, keys], v[:, :, keys], is_causal=False) for keys in (slice(0, 7), slice(7, T))]
    assert merge(*parts).out.isfinite().all() and merge(*parts).lse.max() > 1000


def test_with_a_part_s_own_lse_backward_is_wrong():
    """Sabotage: each part's softmax would add up to 1."""
    q, k, v, gradient = tensors(4, 4)
    expected = whole(q, k, v, gradient, False)
    parts = [attend(q, k[:, :, keys], v[:, :, keys], is_causal=False) for keys in (slice(0, CUT), slice(CUT, T))]
    of_v = attend_backward(gradient, q, k[:, :, :CUT], v[:, :, :CUT], parts[0], is_causal=False)[2]
    assert (of_v - expected[3][:, :, :CUT]).abs().max() > 0.1


def test_tensors_that_do_not_belong_together_are_refused():
    q, k, v = torch.ones(2, 4, 8, 4), torch.ones(2, 2, 8, 4), torch.ones(2, 2, 8, 4)
    check_tensors(q, k, v)
    assert "got (2, 4, 8, 4), (2, 2, 8, 4) and (2, 2, 4, 4)" in message_of(lambda: check_tensors(q, k, v[:, :, ::2]))
    assert "the same tokens" in message_of(lambda: check_tensors(q[:, :, :4], k, v))
    assert "got (2, 8, 4)" in message_of(lambda: check_tensors(q[:, 0], k, v))
    assert "divide the query heads; got 2 and 3" in message_of(lambda: check_tensors(q[:, :3], k, v))
