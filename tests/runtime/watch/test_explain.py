"""Failed runs: the first cause first, and who waited where."""

import contextlib
import ctypes
import inspect
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import RankError, RanksDisagree
from dtlearn.runtime.faults.diagnosis import Diagnosis
from dtlearn.runtime.faults.failure import Failure
from dtlearn.runtime.faults.stacks import Stuck
from dtlearn.runtime.machine.limits import Limits
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.watch import explain
from dtlearn.runtime.watch.explain import advise, comes_before, last_words, other_failures, timeout_message
from tests.runtime.events import Rank

LIMIT = 1.0


def error_of(fn, world_size, *args) -> RankError:
    begun = time.monotonic()
    with pytest.raises(RankError) as caught:
        run_ranks(fn, world_size, *args, timeout=20)
    assert time.monotonic() - begun < 10  # a failure is told when it happens
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
            time.sleep(0.3)  # rank 0 is in its barrier by then
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
    line = tidy.__code__.co_firstlineno + 3
    assert f"rank 1 was handling ValueError: bad batch (line {line}) when it made that call: begin there." in str(error)


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


def test_the_death_of_a_rank_comes_before_what_its_peers_do_then():
    def die():
        if dist.get_rank() == 1:
            os._exit(5)
        with contextlib.suppress(RuntimeError):
            dist.all_reduce(torch.ones(1))
        with contextlib.suppress(RuntimeError):  # they part only now
            dist.all_reduce(torch.ones(1)) if dist.get_rank() == 0 else dist.barrier()
        raise KeyError("no result")

    error = error_of(die, 3)
    assert error.code == "DTL-RANK-EXIT"
    assert str(error).startswith("rank 1 ended (exit code 5) before it finished")


def test_a_death_that_calls_which_do_not_fit_have_caused_comes_after_them():
    calls = {r: Rank(r).call(shape=(r + 4,)).calls[0] for r in range(2)}
    mismatch = Diagnosis("DTL-COLL-SHAPE", "x", (0, 1), calls, dict.fromkeys(calls, "called"))
    assert comes_before(mismatch, [Failure(0, "killed", "SIGABRT", "was killed")])
    assert not comes_before(mismatch, [Failure(2, "killed", "SIGKILL", "was killed")])  # it made no such call
    aborted = [Failure(rank, "killed", "SIGABRT", "was killed") for rank in (3, 0)]  # 2 and 3 are a pair of their own
    assert comes_before(mismatch, aborted)
    assert not comes_before(mismatch, [aborted[0], Failure(0, "raised", "RuntimeError", "lost", consequence=True)])
    assert not comes_before(mismatch, [Failure(0, "raised", "ValueError", "boom")])
    short = replace(mismatch, code="DTL-P2P-SIZE")
    assert comes_before(short, [Failure(0, "raised", "RuntimeError", "sizes differ")])  # it computed on what came
    assert not comes_before(short, [Failure(2, "raised", "ValueError", "boom")])


def test_what_a_rank_raises_of_a_message_of_another_size_is_a_consequence_whenever_the_watch_looked():
    def use():
        if dist.get_rank() == 0:
            dist.send(torch.ones(2), 1)
            dist.barrier()
        else:
            dist.recv(five := torch.zeros(5), 0)
            five + torch.ones(2)

    for _ in range(5):
        assert error_of(use, 2).code == "DTL-P2P-SIZE"


def test_a_crash_in_a_message_to_a_rank_that_does_not_exist_is_named_by_its_cause():
    def lost():
        if dist.get_rank() == 1:
            dist.isend(torch.ones(1), 3)
            os.kill(os.getpid(), signal.SIGSEGV)  # as gloo does now and then in such a send
        dist.barrier()

    error = error_of(lost, 3)
    assert isinstance(error, RanksDisagree)
    assert error.diagnosis.code == "DTL-P2P-UNMATCHED"
    assert str(error).startswith("rank 1 sends to rank 3, but the job has only 3 ranks")


def test_advice_is_given_only_for_known_causes():
    assert "out of memory" in advise(Failure(0, "killed", "SIGKILL", ""), Limits())
    assert "native code" in advise(Failure(0, "killed", "SIGABRT", ""), Limits())
    assert "sys.exit" in advise(Failure(0, "ended", "", ""), Limits())
    assert advise(Failure(0, "raised", "ValueError", ""), Limits()) == ""


def test_advice_for_ends_that_come_from_limits_and_lines():
    assert "out of memory" not in advise(Failure(0, "killed", "SIGKILL", "... ran out of memory"), Limits())
    assert "used up its 3 s" in advise(Failure(0, "killed", "SIGXCPU", ""), Limits(cpu_seconds=3))
    assert "parent process" in advise(Failure(0, "killed", "", ""), Limits())
    assert "Close only what" in advise(Failure(0, "ended", "", "ended: its line to this program was closed"), Limits())


def test_last_words_leave_out_frames_of_this_package():
    own = Path(explain.__file__).parent / "family.py"
    text = (
        f'Fatal Python error\n  File "/home/x/a.py", line 3 in f\n  File "{own}", line 5 in _fork\nExtension modules: a'
    )
    assert last_words(text) == ["Fatal Python error", '  File "/home/x/a.py", line 3 in f']


def test_other_failures_are_cut_to_a_line():
    failures = [Failure(1, "raised", "ValueError", "x" * 500 + "\nmore"), Failure(0, "raised", "KeyError", "k")]
    assert [len(line) for line in other_failures(failures, {0})] == [len("rank 1: ") + 200]


def test_a_mixed_picture_lists_every_rank_and_claims_nothing():
    stuck = [Stuck(0, "waits", "its 1st barrier, line 3"), Stuck(1, "runs", "", ("line 1 in a", "line 9 in b"))]
    assert timeout_message(stuck, 2.5).splitlines() == [
        "the ranks did not finish within 2.5 s:",
        "  rank 0 waits in its 1st barrier, line 3",
        "  rank 1 is running, at line 9 in b",
    ]


def test_a_lost_connection_is_told_with_the_notes_of_the_exception():
    text = "Traceback ...\nRuntimeError: Connection closed by peer"
    failures = [
        Failure.raised(rank, "RuntimeError", "Connection closed by peer", text + note, 0)
        for rank, note in ((1, ""), (2, "\nit stood in 2F0\n"))
    ]
    assert other_failures(failures, set()) == [
        "rank 1 then lost its connection (RuntimeError): a consequence",
        "rank 2 then lost its connection (RuntimeError): a consequence. it stood in 2F0",
    ]


def test_a_thread_that_cannot_start_has_two_reasons():
    failure = Failure(1, "raised", "RuntimeError", "can't start new thread")
    assert (
        advise(failure, Limits()) == "rank 1 has as many threads as it may, or no memory for the stack of another one."
    )
