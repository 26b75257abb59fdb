"""A process that reads, compiles, runs and judges one answer, within limits; its verdict is a line of JSON."""

import contextlib
import json
import os
import resource
import signal
import socket
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from ...course import load_course
from ...runtime.agent import client
from ...runtime.machine.isolation import Isolation
from ...runtime.machine.memory import GIB, read
from ..judging.grade import Answer, grade
from ..learner.exercise_files import find_checks
from ..verdict import Result, Verdict

MEMORY = 2 * GIB  # besides what was loaded before it
READING = 20  # seconds of processor time until the answer is compiled
COMPILING = 3.0  # likewise for that alone: every rank does it again, in the time of its case
JUDGING = 120  # likewise for the judge's part of a case
MAX_LINE = 1 << 20  # bytes of what it says
_LIMITS = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: 256, resource.RLIMIT_FSIZE: 64 << 20}


def work(line: socket.socket, agent: socket.socket) -> None:
    """Do the one job that arrives on `line`, with ranks from the agent at the other end of `agent`."""
    with line.makefile("rb") as requests:
        job: dict[str, Any] = json.loads(requests.readline())
    client.use_forked(agent)
    data = next(
        (int(line.split()[1]) << 10 for line in read(Path("/proc/self/status")).splitlines() if "VmData" in line), 0
    )
    for kind, most in (*_LIMITS.items(), (resource.RLIMIT_DATA, data + MEMORY)):
        with contextlib.suppress(ValueError, OSError):  # macOS knows some of them by name only
            resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _allow(READING)
    try:
        verdict = _verdict(**job)
        if any(r.code == "DTL-GRADER" and "(MemoryError" in r.headline for r in verdict.results):
            raise MemoryError  # what the ranks sent or logged fills more than this process may have
        said = {"verdict": verdict.to_json()}
    except MemoryError:
        said = {"memory": ""}
    except BaseException as error:
        said = {"error": f"{type(error).__name__}: {error}"[:500], "trace": traceback.format_exc()[-2000:]}
    line.sendall(json.dumps(said).encode()[:MAX_LINE] + b"\n")
    os._exit(0)


def _verdict(
    root: str, exercise: str, hidden: str | None, text: str, file: str, isolation: dict[str, Any], **options: Any
) -> Verdict:
    course = load_course(Path(root))
    asked = course.exercise(exercise)
    checks = find_checks(course, asked, Path(hidden) if hidden else None)
    shut_in = Isolation(**isolation)
    answer = Answer(text, file, asked.name)
    if (took := _compiling(answer)) > COMPILING:
        why = f"compiling this answer takes {took:.1f} s of processor time, and may take {COMPILING:.0f} s"
        slow = Result(
            "", 0, "failed", "DTL-LIMIT", why, advice="Write it shorter: an honest answer takes milliseconds."
        )
        return Verdict(asked.id, asked.title, "failed", 0.0, asked.points, results=(slow,))
    return grade(asked, checks, answer, **options, stop=lambda: _allow(JUDGING), isolation=shut_in)


def _compiling(answer: Answer) -> float:
    """How long that takes. What is wrong with its text is for `grade` to say."""
    begun = time.process_time()
    with warnings.catch_warnings(), contextlib.suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        warnings.simplefilter("ignore")
        compile(answer.source, answer.file, "exec", dont_inherit=True)
    return time.process_time() - begun


def _allow(seconds: float) -> bool:
    """So many seconds of processor time from now on; then the system ends this process. Returns False: do not stop."""
    used, most = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, most))
    return False
