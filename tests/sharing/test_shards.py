"""Even parts, own copies, and errors that say what divides what."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.along_dim import unshard
from dtlearn.sharing.shards import divide, shard, shard_bounds, shard_of
from tests.sharing.groups import calls_of, in_groups

WHOLE = torch.arange(288.0).view(12, 2, 12)


def test_bounds_by_hand():
    assert [shard_bounds(12, 3, part) for part in range(3)] == [(0, 4), (4, 8), (8, 12)]
    assert shard_bounds(5, 1, 0) == (0, 5) and divide(12, 4, "heads") == 3


def test_what_divides_what():
    with pytest.raises(ValueError, match=r"7 heads cannot be divided among 2 ranks: 7 = 3 \* 2 \+ 1") as caught:
        divide(7, 2, "heads")
    assert "multiple of 2, or a group of 1 or 7 ranks" in str(caught.value)
    with pytest.raises(ValueError, match="10 output features cannot be divided among 4 ranks"):
        shard_bounds(10, 4, 0, "output features")
    with pytest.raises(ValueError, match="10 elements of dim 1 cannot be divided among 4 ranks"):
        shard_of(torch.zeros(4, 10), -1, 4, 0)


@pytest.mark.parametrize(
    ("parts", "part", "message"), [(0, 0, "at least one rank; got 0"), (3, 3, "0 to 2; got 3"), (3, -1, "got part -1")]
)
def test_no_such_part(parts, part, message):
    with pytest.raises(ValueError, match=message.replace("; got 3", "; got part 3")):
        shard_bounds(12, parts, part)


@pytest.mark.parametrize("dim", [0, 2, -1])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_parts_make_the_whole_and_keep_nothing_of_it(dim, parts):
    weight = torch.nn.Parameter(WHOLE.clone())
    pieces = [shard_of(weight, dim, parts, part) for part in range(parts)]
    assert torch.equal(torch.cat(pieces, dim), WHOLE)
    for piece in pieces:
        assert piece.untyped_storage().nbytes() * parts == weight.untyped_storage().nbytes()
        assert piece.is_contiguous() and not piece.requires_grad and piece.grad_fn is None


def there_and_back():
    def case(group):
        local = {dim: shard(WHOLE, dim, group=group) for dim in (0, -1)}
        first = local[-1].clone()
        whole = {dim: unshard(part, dim, group=group) for dim, part in local.items()}
        whole[-1].zero_()  # the caller's own
        return local[0], whole[0], first.equal(local[-1]), unshard(first, -1, group=group)

    results = in_groups(case)
    outside = dist.new_group([0, 1])
    with pytest.raises(ValueError, match="rank 3 is not in") if dist.get_rank() == 3 else pytest.raises(ValueError):
        if dist.get_rank() == 3:
            shard(WHOLE, 0, group=outside)
        shard(WHOLE[:5], 0)
    return results


def test_on_ranks():
    run = run_ranks(there_and_back, 4, device="cpu", record=True)
    for rank, results in enumerate(run):
        assert sorted(results) == list(range(rank + 1, 5))
        for size, (local, whole, untouched, last) in results.items():
            assert torch.equal(local, WHOLE[rank * 12 // size : (rank + 1) * 12 // size]) and untouched
            assert torch.equal(whole, WHOLE) and torch.equal(last, WHOLE)
    for size in (2, 3, 4):
        assert [nbytes * size for _, nbytes in calls_of(run.record, size)] == [WHOLE.nbytes] * 3
    assert calls_of(run.record, 1) == []
