"""Ranks without a reaper, as on systems that have no means for one (level 0): children of the agent itself."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.errors import RankError, RanksTimeout
from dtlearn.runtime.machine.isolation import Isolation
from dtlearn.runtime.run import run_ranks
from tests.runtime.strays import all_gone

LEVEL_0 = Isolation(0)


def test_ranks_are_children_of_the_agent():
    def total():
        value = torch.ones(1)
        dist.all_reduce(value)
        return os.getppid(), value.item()

    assert run_ranks(total, 2, isolation=LEVEL_0).values == [(get_agent().pid, 2.0)] * 2


@pytest.mark.parametrize("end", ["returns", "raises", "is killed", "hangs"])
def test_the_process_group_of_a_rank_ends_with_it(tmp_path, end):
    def work(path):
        if os.fork() == 0:
            path.write_text(str(os.getpid()))
            time.sleep(300)
        while not (path.exists() and path.read_text()):
            time.sleep(0.01)
        if end == "raises":
            raise ValueError
        if end == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "hangs":
            time.sleep(60)

    path = tmp_path / "pid"
    if end == "returns":
        run_ranks(work, 1, path, isolation=LEVEL_0)
    else:
        with pytest.raises((RankError, RanksTimeout)):
            run_ranks(work, 1, path, timeout=1.0, isolation=LEVEL_0)
    assert all_gone([int(path.read_text())])


def test_ranks_with_and_without_a_reaper_run_side_by_side(world):
    assert run_ranks(lambda: dist.get_rank(), 2, isolation=LEVEL_0).values == [0, 1]
    assert world.gather("rank") == [0, 1]


def test_an_interrupt_ends_them_too(interrupt, tmp_path):
    def sleep(path):
        (path / str(os.getpid())).touch()
        dist.barrier()
        (path / "both").touch()
        time.sleep(60)

    interrupt(tmp_path / "both")
    with pytest.raises(KeyboardInterrupt):
        run_ranks(sleep, 2, tmp_path, isolation=LEVEL_0)
    assert all_gone([int(path.name) for path in tmp_path.glob("[0-9]*")])
