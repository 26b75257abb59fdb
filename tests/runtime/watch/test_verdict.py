"""Why a run failed: what comes first when several things went wrong. Each single kind is in `test_faults.py`."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime import run_ranks
from dtlearn.runtime.errors import RankError, RanksDisagree


def test_calls_that_do_not_fit_come_before_the_time_limit():
    def part():
        if dist.get_rank() == 0:
            dist.barrier()
        time.sleep(60)

    with pytest.raises(Exception) as caught:
        run_ranks(part, 2, timeout=1.0)
    assert caught.value.code == "DTL-STRAGGLER"  # rank 1 could still come: nothing is certain

    def differ():
        dist.barrier() if dist.get_rank() == 0 else dist.all_reduce(torch.ones(1))
        time.sleep(60)

    with pytest.raises(RanksDisagree) as caught:
        run_ranks(differ, 2, timeout=20)
    assert caught.value.code == "DTL-COLL-ORDER"
    assert {rank: [e.op for e in calls] for rank, calls in caught.value.last_calls.items()} == {
        0: ["barrier"],
        1: ["all_reduce"],
    }


def test_what_a_rank_raised_comes_before_calls_that_were_left_over():
    def fail():
        if dist.get_rank() == 1:
            raise ValueError("boom")
        dist.barrier(async_op=True)

    with pytest.raises(RankError, match="rank 1 raised ValueError: boom"):
        run_ranks(fail, 2, timeout=20)


def test_a_group_that_is_only_slow_to_come_is_no_fault(tmp_path):
    def join(path):
        rank = int(os.environ["RANK"])
        time.sleep(6.0 if rank == 1 else 0.0)
        if rank == 2:
            return 2
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
        return rank

    # Rank 2 has ended and needs no group; rank 0 waits for rank 1, which comes later than the first looks.
    assert run_ranks(join, 3, str(tmp_path / "store"), timeout=30, init_group=False).values == [0, 1, 2]
