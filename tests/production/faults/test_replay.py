"""Checksums that name the rank that computed wrong."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.production.faults.replay import checksum, compare_by_replay, compare_replicas, outvoted, wrong_ranks
from dtlearn.runtime.run import run_ranks


def test_a_checksum_is_of_bits_and_of_order():
    a, b = torch.tensor([0.0]), torch.tensor([-0.0])  # equal, and other bits
    assert checksum([a]) != checksum([b])
    assert checksum([a, b]) != checksum([b, a])
    assert checksum([a, b]) == checksum([a.clone(), b.clone()])
    assert checksum([torch.arange(4.0).view(2, 2).t()]) == checksum([torch.tensor([0.0, 2.0, 1.0, 3.0])])


@pytest.mark.parametrize(
    ("votes", "wrong"),
    [
        ({0: 7, 1: 7}, ()),
        ({0: 7, 1: 7, 2: 8}, (2,)),
        ({0: 7, 1: 8}, (0, 1)),
        ({0: 7, 1: 8, 2: 9}, (0, 1, 2)),
        ({0: 7, 1: 7, 2: 8, 3: 8}, (0, 1, 2, 3)),
        ({4: 7, 5: 7, 6: 7, 7: 8}, (7,)),
    ],
)
def test_the_minority_is_wrong_and_without_a_majority_all_may_be(votes, wrong):
    assert outvoted(votes) == wrong


def test_a_rank_is_wrong_in_all_shares_that_it_computed():
    assert wrong_ranks({0: {0: 1, 1: 1, 2: 1}, 1: {1: 5, 2: 2, 0: 2}, 2: {2: 3, 1: 6, 0: 3}}) == (1,)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize(("size", "wrong"), [(1, None), (2, 1), (3, None), (3, 0), (3, 2), (4, 1)])
def test_a_replay_on_other_ranks_names_the_wrong_one(size, wrong, lasting):
    accused = run_ranks(replay, size, wrong, lasting, device="cpu").values
    expected = () if wrong is None else (0, 1) if size == 2 else (wrong,)  # two ranks: one word against the other
    assert accused == [expected] * size


def replay(wrong: int | None, lasting: bool) -> tuple[int, ...]:
    rank = dist.get_rank()
    error = 1 if rank == wrong else 0
    return compare_by_replay(100 + rank + 1000 * error, lambda s: 100 + s + 1000 * error * lasting, dist.group.WORLD)


def test_replicas_are_compared_and_a_wrong_gradient_is_not_seen_by_that():
    assert run_ranks(replicas, 3, device="cpu").values == [((2,), ())] * 3


def replicas() -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank = dist.get_rank()
    gradient = torch.ones(4) * (1.5 if rank == 2 else 1.0)  # rank 2 computes wrong
    dist.all_reduce(gradient)
    unseen = compare_replicas([-0.1 * gradient], dist.group.WORLD)
    parameters = torch.ones(4) + (rank == 2)
    return compare_replicas([parameters], dist.group.WORLD), unseen
