"""The verdict on ranks: what comes first when several things went wrong; and runs that do not end in time.

Each single kind of fault is in `test_faults.py`.
"""

import contextlib
import inspect
import os
import re
import time
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.errors import CellError, RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.faults.codes import ADVICE
from dtlearn.runtime.faults.diagnosis import Diagnosis
from dtlearn.runtime.faults.failure import Failure
from dtlearn.runtime.faults.stacks import Stuck
from dtlearn.runtime.machine.limits import Limits
from dtlearn.runtime.machine.patience import LOOKS_APART, crowding
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.watch.verdict import find_error
from dtlearn.runtime.watch.watch import Watch
from tests.runtime.events import Rank

LIMIT = 1.0


def timeout_of(fn, world_size, limit=LIMIT) -> RanksTimeout:
    run_ranks(int, 1)  # the agent is loaded: what follows is the run alone
    begun = time.monotonic()
    with pytest.raises(RanksTimeout) as caught:
        run_ranks(fn, world_size, timeout=limit)
    assert limit <= time.monotonic() - begun < (limit + 2) * crowding()
    return caught.value


def line_of(fn, text: str) -> int:
    """Line number, in this file, of the line of `fn` that has `text`."""
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_an_exception_with_a_stuck_barrier_in_finally_is_told():
    def tidy():
        try:
            if dist.get_rank() == 1:
                raise ValueError("bad batch")
            time.sleep(60)
        finally:
            dist.barrier()

    text = str(timeout_of(tidy, 2))
    assert f"rank 0 is running, at line {line_of(tidy, 'sleep')}: time.sleep(60)" in text
    raised = f"(after ValueError: bad batch (line {line_of(tidy, 'raise')}))"
    assert f"rank 1 waits in its 1st barrier, line {line_of(tidy, 'barrier')} {raised}" in text


def test_who_waits_for_a_rank_that_is_busy_is_named_with_call_and_line():
    def step():
        dist.all_reduce(torch.ones(2))
        if dist.get_rank() == 0:
            time.sleep(60)
        dist.all_reduce(torch.ones(3))

    error = timeout_of(step, 3)
    call = f"its 2nd all_reduce, line {line_of(step, 'torch.ones(3)')}: dist.all_reduce(torch.ones(3))"
    line = f"line {line_of(step, 'sleep')}: time.sleep(60)"
    why = f"stayed at {line} without computing: a sleep, or a wait for something outside"
    assert str(error).splitlines() == [
        "the ranks did not finish within 1 s:",
        f"  rank 0 is running, at {line}",
        f"  rank 1 waits in {call}",
        f"  rank 2 waits in {call}",
        f"ranks 1 and 2 wait; rank 0 {why}.  [DTL-STRAGGLER]",
        *ADVICE["DTL-STRAGGLER"],
    ]
    assert error.code == error.diagnosis.code == "DTL-STRAGGLER"
    assert error.diagnosis.ranks == (0,)
    assert [event and event.op for event in error.diagnosis.calls.values()] == [None, "all_reduce", "all_reduce"]
    assert [[event.op for event in calls] for calls in error.last_calls.values()] == [
        ["all_reduce"],
        ["all_reduce"] * 2,
        ["all_reduce"] * 2,
    ]
    assert [(s.rank, s.state, s.call) for s in error.stuck] == [
        (0, "runs", ""),
        (1, "waits", call),
        (2, "waits", call),
    ]


def test_an_endless_loop_is_found_by_its_line():
    def loop():
        print("looping")
        while True:
            pass

    error = timeout_of(loop, 2)
    first = line_of(loop, "while")
    lines = range(first, first + 2)
    assert [s.state for s in error.stuck] == ["runs", "runs"]
    assert all(int(re.search(r"line (\d+): ", s.stack[-1])[1]) in lines for s in error.stuck)
    said = f"no rank waits; ranks 0 and 1 did not leave the `while` loop at lines {first}-{first + 1} between two looks"
    assert f"{said}.  [DTL-LOOP]" in str(error)
    assert error.output == {0: "looping\n", 1: "looping\n"}


def test_a_loop_in_native_code_that_holds_the_interpreter_is_found_too():
    def search():
        re.match(r"(a+)+$", "a" * 40 + "b")

    error = timeout_of(search, 1)
    line = f"line {line_of(search, 're.match')}: re.match("
    assert f"rank 0 is running, at {line}" in str(error)
    assert error.code == "DTL-LOOP"
    assert f"rank 0 did not get past {line}" in str(error) and "and computed all the time" in str(error)


def test_a_call_that_raised_and_was_handled_is_not_taken_for_a_waiting_one():
    def handled():
        with contextlib.suppress(ValueError, RuntimeError):
            dist.broadcast(torch.ones(2), 7)
        while True:
            time.sleep(0.01)

    assert [s.state for s in timeout_of(handled, 2).stuck] == ["runs", "runs"]


def test_a_rank_that_never_joins_the_group_keeps_nobody(tmp_path):
    def join(path):
        if os.environ["RANK"] == "1":
            time.sleep(60)
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=2)

    begun = time.monotonic()
    with pytest.raises(RanksTimeout) as caught:
        run_ranks(join, 2, str(tmp_path / "store"), timeout=LIMIT, init_group=False)
    assert time.monotonic() - begun < LIMIT + 2
    text = str(caught.value)
    assert f"rank 0 waits in init_process_group, line {line_of(join, 'init_process_group')}: " in text
    assert f"rank 1 is running, at line {line_of(join, 'sleep')}: time.sleep(60)" in text
    assert caught.value.code == "DTL-INIT"
    assert "rank 0 waits in init_process_group; rank 1 is not in it: not yet, or no more.  [DTL-INIT]" in text


def test_progress_is_told_from_a_loop():
    def step():
        if dist.get_rank() == 0:
            for _ in range(100):
                time.sleep(0.1)
        if dist.get_rank() == 1:
            time.sleep(1.3)  # past the first look
            time.sleep(60)
        dist.barrier()

    error = timeout_of(step, 3)
    first, later = line_of(step, "for _"), line_of(step, "sleep(60)")
    assert error.code == "DTL-STRAGGLER" and error.diagnosis.ranks == (0, 1)
    assert f"rank 0 stayed in the `for` loop at lines {first}-{first + 1}" in str(error)
    assert f"rank 1 went on from line {later - 1}: time.sleep(1.3)" in str(error)
    assert f"to line {later}: time.sleep(60) between two looks" in str(error)


def test_a_stuck_backward_of_ddp_is_not_blamed_on_the_learners_code():
    def step():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        loss = model(torch.ones(1, 2)).sum()
        if dist.get_rank() == 0:
            loss.backward()

    get_agent().load("torch._dynamo")  # building DDP imports it, which takes a second where it is the first
    text = str(timeout_of(step, 2))
    assert "rank 1 returned" in text
    assert "the backward pass of DistributedDataParallel, FSDP), it waits for rank 1" in text


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


class Played:
    """Ranks that stand still: rank 0 waits, rank 1 failed or computes."""

    limits = Limits()

    def __init__(self, *failures: Failure, printed: dict[int, str] | None = None, faults: dict[int, str] | None = None):
        self.watch = Watch({})
        self._failures, self._printed, self._faults = failures, printed, faults or {}

    def ended(self):
        return {failure.rank for failure in self._failures}

    def failures(self):
        return self._failures

    def log_faults(self):
        return self._faults

    def waiting(self):
        return {0: "its 1st barrier, line 3"}

    def look(self):
        return [Stuck(0, "waits", "its 1st barrier, line 3"), Stuck(1, "runs", "", ("line 2: work()",))]

    def wait(self, seconds):
        assert seconds == LOOKS_APART

    def printed(self):
        return self._printed


BOOM = Failure(1, "raised", "ValueError", "boom", "Traceback of rank 1")
CALLS = {rank: Rank(rank).call(shape=(rank + 4,)).calls[0] for rank in range(2)}
MISMATCH = Diagnosis("DTL-COLL-SHAPE", "the shapes differ", (0, 1), CALLS, dict.fromkeys(CALLS, "called"))


def test_a_run_that_failed_shows_the_traceback_and_a_cell_leaves_it_to_the_notebook():
    waits = "rank 0 was waiting in its 1st barrier, line 3"
    run = find_error(Played(BOOM, printed={0: "zero", 1: "one"}), None)
    assert str(run) == f"rank 1 raised ValueError: boom\n\nTraceback of rank 1\n\n{waits}"
    assert type(run) is RankError and run.output == {0: "zero", 1: "one"}
    cell = find_error(Played(BOOM), None, "gather('x'): ")
    assert str(cell) == f"gather('x'): rank 1 raised ValueError: boom\n{waits}"
    assert type(cell) is CellError and cell.output == {}


def test_a_failure_comes_before_the_time_limit_and_a_fault_that_explains_it_before_the_failure():
    assert isinstance(find_error(Played(BOOM), 5.0), RankError)
    lost = replace(BOOM, consequence=True)
    for failure, faults, code in (
        (lost, {}, "DTL-COLL-SHAPE"),
        (BOOM, {}, "DTL-RAISED"),
        (lost, {1: "disk full"}, "DTL-RANK-LOST"),  # of logs that lack something nothing is concluded
    ):
        ranks = Played(failure, faults=faults)
        ranks.watch.diagnosis = MISMATCH
        assert find_error(ranks, None).code == code


def test_nothing_is_wrong_with_ranks_that_are_done_in_time():
    assert find_error(Played(), None) is None
    late = find_error(Played(), 2.0, "run: ")
    assert str(late).startswith(
        "run: the ranks did not finish within 2 s:\n  rank 0 waits in its 1st barrier, line 3\n"
    )
    assert [one.state for one in late.stuck] == ["waits", "runs"] and late.code == "DTL-STRAGGLER"
    assert late.last_calls == {}


def test_lines_are_added_to_every_error():
    for error in (find_error(Played(BOOM), None), find_error(Played(), 2.0)):
        first = str(error)
        error.add_lines(["All ranks were restarted.", "Really."])
        assert str(error) == f"{first}\nAll ranks were restarted.\nReally."
