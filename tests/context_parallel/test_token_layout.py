"""Which tokens ranks have: every token once, blocks that are the mask, work that is even or not."""

import pytest
import torch

from dtlearn.context_parallel import (
    attended_pairs,
    block_between,
    check_length,
    chunks_of,
    global_order,
    imbalance,
    own_tokens,
    shard_tokens,
    token_positions,
    unshard_tokens,
)
from dtlearn.runtime.run import run_ranks
from tests.data_parallel.runs import message_of

LAYOUTS = ("contiguous", "zigzag")


def test_the_table_of_the_module():
    assert [token_positions(8, 4, rank).tolist() for rank in range(4)] == [[0, 7], [1, 6], [2, 5], [3, 4]]
    assert [token_positions(8, 4, rank, "contiguous").tolist() for rank in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [chunks_of(rank, 4) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_what_is_divided_is_whole_again(num_ranks, layout):
    x = torch.randn(2, 24, 3)
    parts = [shard_tokens(x, num_ranks, rank, layout=layout) for rank in range(num_ranks)]
    assert all(part.shape == (2, 24 // num_ranks, 3) for part in parts)
    assert parts[0].untyped_storage().nbytes() == x.nbytes // num_ranks
    assert torch.equal(unshard_tokens(parts, layout=layout), x)
    assert torch.cat(parts, 1)[:, global_order(24, num_ranks, layout)].equal(x)
    by_last = [shard_tokens(x.mT, num_ranks, rank, dim=-1, layout=layout) for rank in range(num_ranks)]
    assert torch.equal(unshard_tokens(by_last, dim=-1, layout=layout), x.mT)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_the_blocks_are_the_mask(num_ranks, layout, is_causal):
    """By brute force: which pairs of positions the blocks of a rank have."""
    length = 24
    mask = torch.zeros(length, length, dtype=torch.int64)
    for rank in range(num_ranks):
        queries = token_positions(length, num_ranks, rank, layout)
        count = 0
        for source in range(num_ranks):
            block = block_between(rank, source, num_ranks, length, layout, is_causal=is_causal)
            if block is None:
                continue
            keys = token_positions(length, num_ranks, source, layout)[slice(*block.keys)]
            own = queries[slice(*block.queries)]
            part = torch.ones(len(own), len(keys), dtype=torch.int64)
            part = part.tril() if block.is_causal else part
            assert part.sum() == block.pairs
            count += block.pairs
            mask[own[:, None], keys] += part
        assert attended_pairs(length, num_ranks, layout, is_causal=is_causal)[rank] == count
    expected = torch.ones(length, length, dtype=torch.int64)
    assert torch.equal(mask, expected.tril() if is_causal else expected)  # each pair once


def test_work_is_even_under_zigzag_and_not_contiguous():
    zigzag, contiguous = (attended_pairs(4096, 4, layout) for layout in ("zigzag", "contiguous"))
    assert len(set(zigzag)) == 1 and imbalance(zigzag) == 1
    assert sum(zigzag) == sum(contiguous) == 4096 * 4097 // 2
    assert contiguous[3] / contiguous[0] == pytest.approx(7, rel=1e-2)  # 2cp - 1
    assert imbalance(contiguous) == pytest.approx(1.75, rel=1e-2)  # (2cp - 1) / cp
    assert imbalance(attended_pairs(4096, 4, "contiguous", is_causal=False)) == 1


def test_lengths_that_do_not_fit_are_refused():
    check_length(12, 2)
    check_length(6, 2, "contiguous")
    message = message_of(lambda: check_length(6, 2))
    assert message == (
        "ValueError: the zigzag layout cuts a sequence into 4 chunks of one length, for 2 ranks; got 6 tokens. Pad the "
        "sequence to 8 tokens, and let the padding's targets not count"
    )
    assert "Pad the sequence to 8 tokens" in message_of(lambda: check_length(7, 2, "contiguous"))
    assert "got 0 tokens" in message_of(lambda: check_length(0, 2))
    assert "got 'striped'" in message_of(lambda: check_length(8, 2, "striped"))
    assert "numbered 0 to 1; got rank 2" in message_of(lambda: token_positions(8, 2, 2))
    assert "got 7 tokens" in message_of(lambda: shard_tokens(torch.ones(2, 7), 2, 0))
    assert "got 9 tokens" in message_of(lambda: block_between(0, 1, 2, 9))


def own():
    x = torch.arange(8)[None]
    return own_tokens(x).tolist(), own_tokens(x, layout="contiguous").tolist(), own_tokens(x[0], dim=0).tolist()


def test_on_ranks():
    assert run_ranks(own, 2, device="cpu").values == [
        ([[0, 1, 6, 7]], [[0, 1, 2, 3]], [0, 1, 6, 7]),
        ([[2, 3, 4, 5]], [[4, 5, 6, 7]], [2, 3, 4, 5]),
    ]
