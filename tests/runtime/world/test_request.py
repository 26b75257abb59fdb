"""What a world exchanges with its ranks besides cells: a rank that dies is noticed at once, the others are freed."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import RankError, RanksDisagree, RanksInterrupted, RanksTimeout
from dtlearn.runtime.world.request import request


@pytest.fixture(scope="module")
def world(make_world):
    return make_world(3)


@pytest.fixture
def works(world):
    """Checks that the ranks answer, that a collective works, and which of them kept their variables."""
    world.push(kept="yes")

    def check(lost=()):
        def total():
            value = torch.ones(1)
            dist.all_reduce(value)
            return value.item()

        assert world.run(total) == [3.0] * 3
        assert world.gather("globals().get('kept')") == [None if r in lost else "yes" for r in range(3)]

    return check


def soon(call, kind, seconds=8.0):
    """The error of `call`, which has to come long before any time limit."""
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        call()
    assert time.monotonic() - begun < seconds
    return caught.value


def test_a_rank_that_dies_while_a_value_is_gathered_is_named_at_once(world, works):
    error = soon(lambda: world.gather("__import__('os')._exit(3) if rank == 1 else rank"), RankError)
    assert (error.code, error.rank) == ("DTL-RANK-EXIT", 1)
    text = str(error)
    assert text.startswith("gather(\"__import__('os')._exit(3) if rank == 1 else rank\"): rank 1 ended (exit code 3)")
    assert "rank 1 got a new process: variables are lost there" in text
    works(lost=[1])


def test_a_rank_that_died_before_is_named_by_a_push(world, works):
    os.kill(world.pids[2], signal.SIGKILL)
    error = soon(lambda: world.push(x=1), RankError)
    assert str(error).startswith("push: rank 2 was killed by signal 9 (SIGKILL)")
    works(lost=[2])


def test_ranks_that_wait_for_one_that_died_are_freed(world, works):
    def die():
        if dist.get_rank() == 0:
            os._exit(7)
        dist.barrier()

    error = soon(lambda: world.run(die), RankError)
    assert str(error).startswith("run: rank 0 ended (exit code 7)")
    works(lost=[0])


def test_a_deadlock_in_a_function_is_diagnosed(world, works):
    def skip():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(2))

    error = soon(lambda: world.run(skip), RanksDisagree)
    assert (error.code, error.diagnosis.ranks) == ("DTL-COLL-SKIP", (1,))
    assert "dist.all_reduce(torch.ones(2))" in str(error)
    works()


def test_the_others_are_freed_from_a_rank_that_raised(world, works):
    def fail():
        if dist.get_rank() == 2:
            raise ValueError("boom")
        dist.barrier()

    error = soon(lambda: world.run(fail), RankError)
    assert str(error).startswith("run: rank 2 raised ValueError: boom\nrank 0 was waiting in its 1st barrier, line")
    assert "in fail" in error.failures[0].traceback and "rank/kernel.py" not in error.failures[0].traceback
    works()


def test_a_loop_ends_at_the_time_limit_with_its_line(world, works):
    def loop():
        while dist.get_rank() == 1:
            pass
        dist.barrier()

    error = soon(lambda: world.run(loop, timeout=1.0), RanksTimeout)
    assert error.code == "DTL-LOOP" and error.diagnosis.ranks == (1,)
    assert str(error).startswith("run: the ranks did not finish within 1 s:")
    assert "ranks 0 and 2 wait; rank 1 did not leave the `while` loop" in str(error)
    works()


def test_an_interrupt_frees_the_ranks(world, works, interrupt):
    interrupt(seconds=0.5)
    error = soon(lambda: world.gather("__import__('time').sleep(60)"), RanksInterrupted)
    assert str(error).splitlines()[0].endswith("interrupted: ranks 0-2 had not finished")
    works()


def test_an_expression_that_fails_leaves_the_groups_as_they_are(world, works):
    generation = world.ranks.generation
    soon(lambda: world.gather("1 / (1 - rank)"), RankError)
    soon(lambda: world.gather("dist.barrier() or 1 / (1 - rank)"), RankError)
    assert world.ranks.generation == generation
    soon(lambda: world.gather("dist.barrier() if rank else 1 / 0"), RankError)
    assert world.ranks.generation > generation
    works()


def test_the_record_is_that_of_the_last_run(world):
    world.run(dist.barrier)
    assert [(event.rank, event.op) for event in world.record()] == [(r, "barrier") for r in range(3)]
    world.gather("rank")
    assert [event.rank for event in world.record([0, 2])] == [0, 2]


def test_only_the_chosen_ranks_are_asked(world):
    assert request(world.ranks, {"do": "gather", "expression": "rank"}, what="x", timeout=20, asked=[0, 2]) == [0, 2]
