"""Ranks that end in every way: how is told of each, and a rank is started again where that was asked for."""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

from dtlearn.parameter_server.ranks.mortal_ranks import join_world, run_mortal_ranks
from dtlearn.runtime.run import run_ranks


def ends(rank, start, folder):
    if rank == 1:
        raise ValueError("a reason")
    if rank == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    if rank == 3 and not start:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 4:
        time.sleep(600)
    return rank, start


def meets_twice(rank, start, folder):
    total = torch.ones(1)
    for world in range(2):
        join_world(rank, 2, folder, world)
        dist.all_reduce(total)
    return total.item()


def outcomes(fn, world_size, folder, **options):
    def run():
        return run_mortal_ranks(lambda rank, start: fn(rank, start, Path(folder)), world_size, Path(folder), **options)

    return run_ranks(run, 1, init_group=False)[0]


def test_every_end_is_told(tmp_path):
    told = outcomes(ends, 5, tmp_path, restart=[3], timeout=3.0)
    assert [outcome.value for outcome in told] == [(0, 0), None, None, (3, 1), None]
    assert told[1].error == "ValueError: a reason\n" and [told[r].error for r in (0, 2, 3, 4)] == [""] * 4
    assert [outcome.signal for outcome in told] == [0, 0, signal.SIGTERM, 0, signal.SIGKILL]
    assert [outcome.starts for outcome in told] == [1, 1, 1, 2, 1]


def test_ranks_meet_in_one_world_after_the_other(tmp_path):
    assert [outcome.value for outcome in outcomes(meets_twice, 2, tmp_path)] == [4.0, 4.0]
