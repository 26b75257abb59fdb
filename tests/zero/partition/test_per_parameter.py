"""Per parameter: the chunks are torch's, the last ones shorter or empty."""

import pytest
import torch

from dtlearn.zero import plan_per_parameter


@pytest.mark.parametrize("num_ranks", range(1, 6))
def test_pieces_are_those_of_torch_chunk(num_ranks):
    shapes = [(5, 3), (4,), (1, 2, 2), (12, 1), (0, 2), (2, 0)]
    partition = plan_per_parameter(shapes, num_ranks)
    for number, shape in enumerate(shapes):
        whole = torch.arange(torch.Size(shape).numel()).view(shape)
        chunks = [*torch.chunk(whole, num_ranks), *[whole[:0]] * num_ranks][:num_ranks]
        for rank, chunk in enumerate(chunks):
            own = [piece for piece in partition.slices(rank) if piece.parameter == number]
            assert [(p.start, p.stop) for p in own] == (
                [(chunk[(0,) * chunk.dim()].item(), chunk.flatten()[-1].item() + 1)] if chunk.numel() else []
            )
        assert partition.buckets[number].shard == chunks[0].numel()


def test_as_fully_shard_stores_it():
    """3 rows on 4 ranks: one row each, the last rank none, and it stores one all the same."""
    partition = plan_per_parameter([(3, 5)], 4)
    assert [partition.owned(rank) for rank in range(4)] == [5, 5, 5, 0]
    assert partition.shard == 5 and partition.padding == 5


def test_bad_input():
    with pytest.raises(ValueError, match=r"parameter 1 has no dimension along which it could be cut: make it of shape"):
        plan_per_parameter([(2,), ()], 2)
    with pytest.raises(ValueError, match="num_ranks must be 1 or more"):
        plan_per_parameter([(2,)], 0)
