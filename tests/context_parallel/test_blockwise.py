"""Attention block by block beside the whole, all keys being there; in any order of blocks; without one it fails."""

import pytest
import torch

from dtlearn.context_parallel.blockwise import blockwise_attention
from dtlearn.context_parallel.token_layout import AttentionBlock
from tests.context_parallel.parity import HEADS, TOLERANCE, T, tensors, whole

HALF = T // 2
# The triangle of a causal mask in blocks: the first one has all queries.
CAUSAL = [AttentionBlock((0, T), (0, T), True)]
CUT = [
    AttentionBlock((0, T), (0, 1), False),  # the first key; all others of the triangle have queries 1 to T
    None,
    AttentionBlock((1, T), (1, T), True),
]
FULL = [AttentionBlock((0, T), (HALF, T), False), AttentionBlock((0, T), (0, HALF), False)]


def difference(blocks, heads, is_causal):
    q, k, v, gradient = tensors(*HEADS[heads])
    expected = whole(q, k, v, gradient, is_causal)
    queries, key_value = q.clone().requires_grad_(), torch.stack([k, v]).requires_grad_()
    out = blockwise_attention(queries, key_value, blocks)
    out.backward(gradient)
    found = out.detach(), queries.grad, *key_value.grad
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("heads", HEADS)
def test_blocks_are_the_whole(heads):
    assert difference(CAUSAL, heads, True) < TOLERANCE
    assert difference(CUT, heads, True) < TOLERANCE
    assert difference(FULL, heads, False) < TOLERANCE
    assert difference(FULL[::-1], heads, False) < TOLERANCE


def test_without_a_block_it_is_not():
    assert difference(CUT[:1], "mha", True) > 0.1
    assert difference(FULL[:1], "mha", False) > 0.1
    assert difference([*FULL, FULL[0]], "mha", False) > 0.01  # a block twice
