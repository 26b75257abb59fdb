"""One rank acts, all learn how it went: a rank that waited for ever would be the bug."""

import errno
import os
from pathlib import Path

import pytest
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks
from dtlearn.train.ranks.rank_0 import TrainError, from_rank_0
from tests.data_parallel.runs import message_of


def refuse():
    raise TrainError("no such task")


def fail():
    raise KeyError("unexpected")


def write():
    Path(os.devnull, "file").write_text("")


def all_outcomes():
    acted = []
    told = [from_rank_0(lambda: acted.append(1) or {"step": 3})]
    told += [message_of(lambda action=action: from_rank_0(action)) for action in (refuse, write, fail)]
    dist.barrier()  # the ranks are in step
    return acted, told


@pytest.mark.parametrize("world_size", [1, 3])
def test_all_ranks_learn_what_came_of_it_on_rank_0(world_size):
    run = run_ranks(all_outcomes, world_size, device="cpu")
    for rank, (acted, told) in enumerate(run.values):
        assert acted == ([1] if rank == 0 else [])  # the others did not act
        failed = "KeyError: 'unexpected'" if rank == 0 else "RuntimeError: rank 0 failed: KeyError: 'unexpected'"
        assert told == [{"step": 3}, "TrainError: no such task", "TrainError: /dev/null/file: Not a directory", failed]


def test_each_question_is_one_object_from_rank_0():
    run = run_ranks(all_outcomes, 2, device="cpu", record=True)
    calls = [event.op for event in run.record.events if event.rank == 1 and event.op != "barrier"]
    assert calls == ["broadcast_object_list"] * 4


def test_without_a_group_it_just_acts():
    assert from_rank_0(lambda: 7) == 7
    with pytest.raises(TrainError, match="no such task"):
        from_rank_0(refuse)
    with pytest.raises(TrainError, match="Not a directory"):
        from_rank_0(write)


def fails_on_rank_0(error):
    def action():
        assert os.environ["RANK"] == "0"
        raise error

    try:
        from_rank_0(action)
    except Exception as raised:
        return type(raised).__name__, str(raised)


@pytest.mark.parametrize(
    ("error", "here", "there"),
    [
        (TrainError("no"), ("TrainError", "no"), ("TrainError", "no")),
        (OSError(errno.ENOSPC, "full", "f.pt"), ("TrainError", "f.pt: full"), ("TrainError", "f.pt: full")),
        (KeyError("k"), ("KeyError", "'k'"), ("RuntimeError", "rank 0 failed: KeyError: 'k'")),
    ],
)
def test_a_failure_of_rank_0_is_everybodys(error, here, there):
    assert run_ranks(fails_on_rank_0, 2, error, device="cpu").values == [here, there]
