import contextlib
import functools

import pytest
import torch.distributed as dist

from dtlearn import run_ranks
from dtlearn.production.practice.disk import DiskCall, left_after
from dtlearn.production.practice.stops import changed_by_several, read_back, save_until
from dtlearn.runtime.errors import RankError

PARTS = {5: [b"old", b"old"], 8: [b"new", b"new"]}
BEFORE = {"latest": b"5", "step-5/rank0": b"old", "step-5/rank1": b"old"}


def save(disk, barrier):
    rank = dist.get_rank()
    disk.write(f"step-8/rank{rank}", b"new")
    barrier()
    if rank == 0:
        disk.write("new", b"8")
        disk.rename("new", "latest")


def stopped(victim, moments):
    """On each rank."""
    run = save_until(save, BEFORE, victim, moments)
    return run.stopped_at, read_back(left_after(BEFORE, run.calls), PARTS), len(run.calls) - len(run.fewest)


@pytest.mark.parametrize(
    ("victim", "moments", "outcome"),
    [
        (0, None, ("", ({8}, ""), 0)),
        (0, 0, ("rank 0 before write('step-8/rank0')", ({5}, ""), 2)),  # the other one has written, and need not have
        (1, 1, ("rank 1 in write('step-8/rank1')", ({5}, ""), 2)),
        (0, 4, ("rank 0 before rename('new', 'latest')", ({5}, ""), 0)),
    ],
)
def test_a_rank_is_stopped_and_the_others_notice_in_the_barrier(victim, moments, outcome):
    assert list(run_ranks(stopped, 2, victim, moments)) == [outcome] * 2


def catch(disk, barrier, again):
    disk.write(f"step-8/rank{dist.get_rank()}", b"new")
    with contextlib.suppress(Exception):
        barrier()
    if again:
        barrier()


def who_catches(save):
    """On each rank, if rank 1 is stopped at once."""
    return save_until(save, BEFORE, 1, 0).caught


def test_who_catches_what_a_barrier_raises_is_named():
    assert list(run_ranks(who_catches, 3, save)) == [[]] * 3
    for again in (False, True):
        assert list(run_ranks(who_catches, 3, functools.partial(catch, again=again))) == [[0, 2]] * 3


def leave_early(disk, barrier):
    if dist.get_rank() == 0:
        barrier()


def left_alone():
    save_until(leave_early, BEFORE)


def test_a_barrier_that_a_rank_leaves_out_does_not_hang():
    with pytest.raises(RankError, match="rank 1 has returned: call it equally often"):
        run_ranks(left_alone, 2)


def test_what_two_ranks_change_between_two_barriers_is_named():
    calls = [DiskCall(0, 0, "write", "x"), DiskCall(0, 1, "rename", "y", "x"), DiskCall(1, 1, "write", "z")]
    assert changed_by_several(calls) == ["x"]
    assert changed_by_several([*calls[:1], calls[1]._replace(period=1)]) == []


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"latest": {b"5", b"8"}}, "rank 0's part of it is missing"),
        ({"latest": {b""}}, "latest holds ''"),
        ({"step-5/rank1": {b"old", b"ol"}}, "rank 1's part of it is torn"),
        ({"step-5/rank1": {b"old", None}}, "rank 1's part of it is missing"),
    ],
)
def test_a_reader_finds_what_is_wrong(change, wrong):
    left = {name: {data} for name, data in BEFORE.items()}
    assert read_back(left, PARTS) == ({5}, "")
    assert wrong in read_back(left | change, PARTS)[1]
    assert read_back({}, PARTS) == ({None}, "")
