"""Hostile answers against the process that judges them: each gets its own verdict, and nothing of it stays."""

import contextlib
import json
import os
import signal
import socket
import time

import pytest

from dtlearn.grading.grader_process import grader, server
from dtlearn.grading.grader_process.client import Graders
from dtlearn.grading.verdict import Result, Verdict
from dtlearn.runtime.machine import patience
from dtlearn.runtime.machine.isolation import best
from dtlearn.runtime.machine.processes import descendants

OPENED = """
import json, os, socket, stat, struct, time
import torch.distributed as dist

def mine(wanted):
    for number in range(3, 300):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode) and wanted == "line":
                line = socket.socket(fileno=os.dup(number))
                if line.family == socket.AF_UNIX:
                    return line
            name = os.readlink(f"/proc/self/fd/{number}")
            if wanted == "log" and "calls" in name and "spans" not in name:
                return name
        except OSError:
            pass

def mean(x):
    dist.barrier()
    LINES
    time.sleep(1)
    dist.all_reduce(x.clone())
    return x
"""
LOG = "log = mine('log'); "
LINE = "line = mine('line'); "
HOSTILE = {
    "a FIFO in place of the log": LOG + "os.unlink(log); os.mkfifo(log)",
    "an endless file in place of the log": LOG + "os.unlink(log); os.symlink('/dev/zero', log)",
    "a line of junk in the log": LOG + "open(log, 'ab').write(b'[[[[[\\n')",
    "a call of wrong types in the log": LOG + """open(log, 'ab').write(b'{"seq": 9, "op": 7}\\n')""",
    "no JSON on the line": LINE + "line.sendall(struct.pack('!IQ', 5, 0) + b'[1,2,')",
    "JSON without end on the line": LINE + "line.sendall(struct.pack('!IQ', 1 << 20, 0) + b'[' * (1 << 20))",
    "wrong types on the line": LINE + 'text = b\'{"kind": "error", "type": [], "message": 1, "traceback": {}}\'; '
    "line.sendall(struct.pack('!IQ', len(text), 0) + text)",
}


@pytest.fixture
def judged(graded):
    """`judged(text)`: the verdict on an answer; `judged.memory`: of the last."""

    def grade(text, limit=60.0):
        found, grade.memory = graded(text, best(2), limit)
        return found

    return grade


@pytest.mark.parametrize("what", HOSTILE)
def test_what_a_rank_writes_in_place_of_the_package_is_its_own_fault(judged, what):
    verdict = judged(OPENED.replace("LINES", HOSTILE[what]))
    assert isinstance(verdict, Verdict)
    assert (verdict.state, verdict.code, verdict.score) == ("failed", "DTL-TAMPERED", 0)


def test_a_flood_on_the_line_is_its_own_fault_and_an_honest_answer_follows(judged, right):
    flood = (
        LINE
        + "line.sendall(struct.pack('!IQ', 2, 8 << 30) + b'{}'); [line.sendall(bytes(1 << 20)) for _ in range(8000)]"
    )
    found = judged(OPENED.replace("LINES", flood))
    if isinstance(found, Result):  # where the machine is quick enough for 2 GB in the ten seconds of a case
        assert (found.state, found.code) == ("failed", "DTL-LIMIT")
        assert "2 GB" in found.headline and 3 << 29 < judged.memory < 3 << 30
    else:
        assert (found.state, found.score) == ("timeout", 0) and judged.memory < 3 << 30
    assert judged(right).passed and 0 < judged.memory < 1 << 28  # what all graders share is not counted


def test_a_text_that_takes_too_much_to_compile_is_its_own_fault(judged):
    lines = ["def mean(x):"]
    for depth in range(1, 26):
        lines += [" " * depth + "try:", " " * depth + " pass", " " * depth + "finally:"]
    found = judged("\n".join([*lines, " " * 26 + "pass"]))
    assert found.state == "failed"
    code = found.code or found.headline
    assert code in ("DTL-LIMIT", "DTL-SYNTAX")


def test_a_text_that_takes_long_to_compile_is_no_fault_of_the_machine(course, right, monkeypatch):
    """Such a one was "not judged": the ranks, which compile it too, had no time left for its case."""
    job = {"hidden": None, "file": "mean.py", "isolation": {"level": 1}, "seconds": 1.0}
    monkeypatch.setattr(grader, "COMPILING", 0.0)
    monkeypatch.setattr(grader, "grade", lambda *args, **options: pytest.fail("it was run"))
    verdict = grader._verdict(str(course.root), "ch01.mean", text=right, **job)
    assert (verdict.state, verdict.code, verdict.score, verdict.final) == ("failed", "DTL-LIMIT", 0.0, True)
    assert "compiling this answer takes 0.0 s of processor time" in verdict.first_fault.headline
    lines = grader.Answer("\n".join(f"x{k} = {k}" for k in range(20_000)), "mean.py", "mean")
    assert grader._compiling(lines) > grader._compiling(grader.Answer(right, "mean.py", "mean")) > 0
    assert grader._compiling(grader.Answer("def", "mean.py", "mean")) < 3


def test_who_is_silent_is_ended_and_leaves_nothing(judged, graders):
    found = judged("import time\ntime.sleep(50)\n", limit=0.5)
    assert isinstance(found, Result) and (found.state, found.code) == ("failed", "DTL-LIMIT")
    assert "took too long" in found.headline and judged.memory > 0  # also of one that was killed
    deadline = time.monotonic() + 20
    while (left := descendants(graders.process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


@pytest.mark.parametrize(("queued", "late"), [(time.monotonic, False), (lambda: 0.0, True)], ids=["busy", "quiet"])
def test_a_grader_that_cannot_get_a_processor_has_longer(queued, late):
    """It takes 0.8 s of 0.5, on a machine where everybody waits for a processor all the time, or never."""
    ours, theirs = socket.socketpair()
    if (pid := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            patience._queued = lambda pid: queued()
            grader.work = lambda line, agent: time.sleep(0.8)
            server._guard(os.dup(theirs.fileno()), 0.5)
        os._exit(70)
    theirs.close()
    with ours:
        said = json.loads(ours.recv(1000))
    os.waitpid(pid, 0)
    assert (said["late"], said["ended"]) == (late, -signal.SIGKILL if late else 70)


def test_a_server_that_was_killed_is_replaced(judged, graders, right):
    graders.process._process.kill()
    graders.process._process.wait()
    assert judged(right).passed


def test_what_is_no_verdict_is_refused(monkeypatch):
    graders, sockets = object.__new__(Graders), []

    def answers(control, data, descriptors):
        other = socket.socket(fileno=__import__("os").dup(descriptors[0]))
        other.sendall(b'{"verdict": "[[["}\n[1]\nnothing\n' + b'{"ended": 0}\n')
        sockets.append(other)
        other.shutdown(socket.SHUT_WR)

    import threading
    import types

    graders._lock, graders._ended, graders._control = threading.Lock(), False, None
    graders.process = types.SimpleNamespace(alive=True, wait_for=lambda line: True)
    monkeypatch.setattr(socket, "send_fds", answers)
    found, memory = graders.grade(1.0, text="x")
    for other in sockets:
        other.close()
    assert isinstance(found, Result) and found.state == "failed"
    assert memory == 0
