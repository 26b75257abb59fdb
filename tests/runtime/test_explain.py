"""Failed and stuck runs: the first cause first, who waited where, and the time limit is kept."""

import contextlib
import ctypes
import inspect
import os
import re
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime import run_ranks
from dtlearn.runtime.errors import Failure, RankError, RanksDisagree, RanksTimeout, Stuck
from dtlearn.runtime.explain import advise, other_failures, ranks_text, read_stack, timeout_message

LIMIT = 1.0


def error_of(fn, world_size, *args) -> RankError:
    begun = time.monotonic()
    with pytest.raises(RankError) as caught:
        run_ranks(fn, world_size, *args, timeout=20)
    assert time.monotonic() - begun < 10  # a failure is told when it happens
    return caught.value


def timeout_of(fn, world_size, limit=LIMIT) -> RanksTimeout:
    run_ranks(int, 1)  # the agent is loaded: what follows is the run alone
    begun = time.monotonic()
    with pytest.raises(RanksTimeout) as caught:
        run_ranks(fn, world_size, timeout=limit)
    assert limit <= time.monotonic() - begun < limit + 2
    return caught.value


def line_of(fn, text: str) -> int:
    """Line number, in this file, of the line of `fn` that has `text`."""
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_the_rank_that_raised_comes_first_and_the_others_were_waiting():
    def step():
        dist.barrier()
        if dist.get_rank() == 1:
            time.sleep(0.2)
            raise ValueError("bad batch")
        dist.all_reduce(torch.ones(2))

    error = error_of(step, 3)
    line = line_of(step, "all_reduce")
    text = str(error)
    assert text.startswith("rank 1 raised ValueError: bad batch\n\nTraceback")
    assert 'raise ValueError("bad batch")' in text
    for rank in (0, 2):
        assert f"rank {rank} was waiting in its 1st all_reduce, line {line}: dist.all_reduce(torch.ones(2))" in text
    assert error.rank == 1
    assert [(f.rank, f.kind, f.type) for f in error.failures] == [(1, "raised", "ValueError")]


@pytest.mark.parametrize("code", [0, 3])
def test_sys_exit_is_a_failure_whatever_its_code(code):
    def leave():
        if dist.get_rank() == 1:
            sys.exit(code)
        dist.barrier()

    text = str(error_of(leave, 2))
    assert text.startswith(f"rank 1 raised SystemExit: {code}\nSomething ended the process early")
    assert "rank 0 was waiting in its 1st barrier" in text


@pytest.mark.parametrize("somebody_waits", [True, False])
def test_os_exit_is_a_failure_although_its_code_is_0(somebody_waits):
    def leave():
        if dist.get_rank() == 1:
            print("last words")
            os._exit(0)
        if somebody_waits:
            dist.barrier()

    error = error_of(leave, 2)
    assert str(error).startswith("rank 1 ended (exit code 0) before it finished\nSomething ended the process early")
    assert "the last that rank 1 printed:\nlast words" in str(error)
    assert error.rank == 1


def test_a_killed_rank_is_named_with_the_likely_reason():
    def die():
        if dist.get_rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    error = error_of(die, 3)
    assert str(error).startswith(
        "rank 2 was killed by signal 9 (SIGKILL)\nThe usual reason is that the machine ran out"
    )
    assert error.failures[0].kind == "killed"


def test_a_crash_in_native_code_shows_the_line():
    def crash():
        if dist.get_rank() == 0:
            ctypes.string_at(0)
        dist.barrier()

    error = error_of(crash, 2)
    assert str(error).startswith("rank 0 was killed by signal 11 (SIGSEGV)\nThe process crashed in native code")
    assert f"line {line_of(crash, 'string_at')} in crash" in str(error)
    assert "Segmentation fault" in error.output[0]


def test_a_signal_without_a_name_is_told():
    def die():
        signal.signal(40, signal.SIG_DFL)
        os.kill(os.getpid(), 40)

    assert str(error_of(die, 1)).startswith("rank 0 was killed by signal 40 (a real-time signal)")


def test_a_chain_of_exceptions_is_shown_from_its_root():
    def chain():
        try:
            _ = 1 / 0
        except ZeroDivisionError as error:
            raise RuntimeError("no average") from error

    text = str(error_of(chain, 2))
    assert text.startswith("ranks 0 and 1 raised RuntimeError: no average")
    root, link, outer = (text.rindex(part) for part in ("division by zero", "direct cause", "no average"))
    assert root < link < outer


def test_ranks_that_raised_the_same_are_told_together():
    def unknown():
        return undefined_name  # noqa: F821

    error = error_of(unknown, 4)
    assert str(error).startswith("ranks 0-3 raised NameError: name 'undefined_name' is not defined")
    assert str(error).count("Traceback") == 1
    assert len(error.failures) == 4


def test_ranks_that_raised_differently_get_a_line_each():
    def differ():
        raise ValueError(f"problem {dist.get_rank()}\nsecond line")

    text = str(error_of(differ, 3))
    first = int(text.split()[1])
    for rank in {0, 1, 2} - {first}:
        assert f"\nrank {rank}: ValueError: problem {rank}\n" in text + "\n"


def test_a_lost_connection_is_never_the_first_cause():
    def lose():
        if dist.get_rank() == 1:
            os._exit(5)
        dist.all_reduce(torch.ones(1))

    error = error_of(lose, 3)
    assert str(error).startswith("rank 1 ended (exit code 5) before it finished")
    for failure in error.failures[1:]:
        assert failure.consequence
        assert f"rank {failure.rank} then lost its connection (RuntimeError): a consequence" in str(error)
        assert failure.message not in str(error)


def test_an_exception_with_a_matching_barrier_in_finally_is_told():
    def tidy():
        try:
            if dist.get_rank() == 1:
                raise ValueError("bad batch")
        finally:
            dist.barrier()

    assert str(error_of(tidy, 2)).startswith("rank 1 raised ValueError: bad batch")


def test_an_exception_with_a_barrier_in_finally_that_meets_another_call_is_told():
    def tidy():
        try:
            if dist.get_rank() == 1:
                raise ValueError("bad batch")
            dist.all_reduce(torch.ones(1))
        finally:
            dist.barrier()

    error = error_of(tidy, 2)
    assert isinstance(error, RanksDisagree)
    assert error.diagnosis.code == "DTL-COLL-ORDER"
    assert "rank 1 was handling ValueError: bad batch when it made that call: begin there." in str(error)


def test_an_exception_with_a_stuck_barrier_in_finally_is_told():
    def tidy():
        try:
            if dist.get_rank() == 1:
                raise ValueError("bad batch")
            time.sleep(60)
        finally:
            dist.barrier()

    text = str(timeout_of(tidy, 2))
    assert f"rank 0 is running, at line {line_of(tidy, 'sleep')} in tidy" in text
    assert f"rank 1 waits in its 1st barrier, line {line_of(tidy, 'barrier')} (after ValueError: bad batch)" in text


def test_a_skipped_collective_names_who_waits_where_and_who_ended():
    def skip():
        dist.all_reduce(torch.ones(2))
        if dist.get_rank() == 0:
            return
        dist.all_reduce(torch.ones(3))

    error = error_of(skip, 3)
    line = f"line {line_of(skip, 'torch.ones(3)')}: dist.all_reduce(torch.ones(3))"
    assert isinstance(error, RanksDisagree)
    assert error.diagnosis.code == "DTL-COLL-SKIP"
    assert str(error).startswith(
        "ranks 1 and 2 wait in all_reduce number 2 of their group; rank 0 ended without making that call"
    )
    assert str(error).count(line) == 2


def test_who_waits_for_a_rank_that_is_busy_is_named_with_call_and_line():
    def step():
        dist.all_reduce(torch.ones(2))
        if dist.get_rank() == 0:
            time.sleep(60)
        dist.all_reduce(torch.ones(3))

    error = timeout_of(step, 3)
    call = f"its 2nd all_reduce, line {line_of(step, 'torch.ones(3)')}: dist.all_reduce(torch.ones(3))"
    assert str(error).splitlines() == [
        "the ranks did not finish within 1 s:",
        f"  rank 0 is running, at line {line_of(step, 'sleep')} in step",
        f"  rank 1 waits in {call}",
        f"  rank 2 waits in {call}",
    ]
    assert [(s.rank, s.state, s.call) for s in error.stuck] == [
        (0, "running", ""),
        (1, "waiting", call),
        (2, "waiting", call),
    ]


def test_an_endless_loop_is_found_by_its_line():
    def loop():
        print("looping")
        while True:
            pass

    error = timeout_of(loop, 2)
    lines = range(line_of(loop, "while"), line_of(loop, "while") + 2)
    assert [s.state for s in error.stuck] == ["running", "running"]
    assert all(int(re.search(r"line (\d+) in loop", s.stack[-1])[1]) in lines for s in error.stuck)
    assert "No rank waits for another" in str(error)
    assert error.output == {0: "looping\n", 1: "looping\n"}


def test_a_loop_in_native_code_that_holds_the_interpreter_is_found_too():
    def search():
        re.match(r"(a+)+$", "a" * 40 + "b")

    error = timeout_of(search, 1)
    assert f"rank 0 is running, at line {line_of(search, 're.match')} in search" in str(error)


def test_a_call_that_raised_and_was_handled_is_not_taken_for_a_waiting_one():
    def handled():
        with contextlib.suppress(ValueError, RuntimeError):
            dist.broadcast(torch.ones(2), 7)
        while True:
            time.sleep(0.01)

    assert [s.state for s in timeout_of(handled, 2).stuck] == ["running", "running"]


def test_a_rank_that_never_joins_the_group_keeps_nobody(tmp_path):
    def join(path):
        if os.environ["RANK"] == "1":
            time.sleep(60)
        dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=2)

    begun = time.monotonic()
    with pytest.raises(
        RanksTimeout, match=r"rank 0 is running, at line \d+ in join\n  rank 1 is running, at line \d+ in join"
    ):
        run_ranks(join, 2, str(tmp_path / "store"), timeout=LIMIT, init_group=False)
    assert time.monotonic() - begun < LIMIT + 2


def test_a_stuck_backward_of_ddp_is_not_blamed_on_the_learners_code():
    def step():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        loss = model(torch.ones(1, 2)).sum()
        if dist.get_rank() == 0:
            loss.backward()

    text = str(timeout_of(step, 2))
    assert "rank 1 returned" in text
    assert "the backward pass of DistributedDataParallel, FSDP), it waits for rank 1" in text


def test_a_backward_of_ddp_that_stays_stuck_is_diagnosed():
    def step():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        loss = model(torch.ones(1, 2)).sum()
        if dist.get_rank() == 0:
            loss.backward()

    error = error_of(step, 2)
    assert isinstance(error, RanksDisagree)
    assert error.diagnosis.code == "DTL-COLL-SKIP"
    assert f"line {line_of(step, 'backward')}: loss.backward()" in str(error)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([2], "rank 2"),
        ([0, 1], "ranks 0 and 1"),
        ([3, 1, 2], "ranks 1-3"),
        ([0, 1, 2, 5], "ranks 0-2 and 5"),
        ([0, 2, 4], "ranks 0, 2 and 4"),
    ],
)
def test_ranks_in_words(ranks, text):
    assert ranks_text(ranks) == text


def test_a_mixed_picture_lists_every_rank_and_claims_nothing():
    stuck = [Stuck(0, "waiting", "its 1st barrier, line 3"), Stuck(1, "running", "", ("line 1 in a", "line 9 in b"))]
    assert timeout_message(stuck, 2.5).splitlines() == [
        "the ranks did not finish within 2.5 s:",
        "  rank 0 waits in its 1st barrier, line 3",
        "  rank 1 is running, at line 9 in b",
    ]


def test_advice_is_given_only_for_known_causes():
    assert "out of memory" in advise(Failure(0, "killed", "SIGKILL", ""))
    assert "native code" in advise(Failure(0, "killed", "SIGABRT", ""))
    assert "sys.exit" in advise(Failure(0, "ended", "", ""))
    assert advise(Failure(0, "raised", "ValueError", "")) == ""


def test_other_failures_are_cut_to_a_line():
    failures = [Failure(1, "raised", "ValueError", "x" * 500 + "\nmore"), Failure(0, "raised", "KeyError", "k")]
    assert [len(line) for line in other_failures(failures, {0})] == [len("rank 1: ") + 200]


def test_a_stack_shows_the_learners_frames_only(tmp_path):
    path = tmp_path / "stack.txt"
    path.write_text(
        'Thread 0x1 (most recent call first):\n  File "/home/x/other.py", line 5 in other\n\n'
        "Current thread 0x2 (most recent call first):\n"
        f'  File "{torch.__file__}", line 1 in wait\n  File "/home/x/my.py", line 8 in inner\n'
        '  File "/home/x/my.py", line 3 in <module>\n  File "<frozen runpy>", line 9 in run\n'
    )
    assert read_stack(path) == ("line 3 in <module>", "line 8 in inner")
    assert read_stack(tmp_path / "none") == ()
