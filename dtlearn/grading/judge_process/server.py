"""The judge: a process that grades for a notebook, so that no cell of the notebook can reach what judges it.

The learner's cells run in the kernel and may have changed anything there, torch included. This process never runs
them: it reads files, starts ranks and compares what comes back. `client` starts it and talks to it over its standard
input and output, one JSON object a line:

    -> {"do": "grade", "id": 1, "root": ..., "exercise": ..., "source": ..., "seed": ..., "keep": true, "draw": true}
    <- {"id": 1, "kind": "progress", "result": {...}, "done": 1, "of": 8}     as each case ends
    <- {"id": 1, "kind": "verdict", "verdict": {...}}                         or "error" with a text, or "cancelled"
    <- {"id": 1, "kind": "run", "run": {...}}         after a verdict, if "draw" was asked: see `own_run`; or null
    -> {"do": "cancel", "id": 1}

It has a session of its own, so that an interrupt of the notebook does not reach it, and ends when its input closes or
its parent dies; the agent ends the ranks then.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...runtime.machine.namespaces import die_with_parent
from ...runtime.machine.patience import HEAD_START

if TYPE_CHECKING:
    from ..own_run import OwnRun
    from ..verdict import Verdict


class Cancelled(BaseException):
    """Raised in the middle of a grading that is no longer wanted. Nothing may take it for a fault."""


class Server:
    """Grades one request after another, and writes the answers to `out`."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._current: int | None = None  # id of the request that is being graded
        self._cancelled: set[int] = set()

    def listen(self, lines: IO[str]) -> None:
        """Take requests until there are no more; then end this process, in whatever it is."""
        for line in lines:
            request = json.loads(line)
            if request["do"] == "cancel":
                self._cancelled.add(request["id"])
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            else:
                self._requests.put(request)
        os._exit(0)

    def serve(self) -> None:
        """Grade, for ever."""
        first = None
        with contextlib.suppress(queue.Empty):
            first = self._requests.get(timeout=HEAD_START)
        _load()  # here, where it cannot be cancelled: half an import would be no judge
        while True:
            self._answer(first or self._requests.get())
            first = None

    def on_cancel(self, *_: object) -> None:
        # In the main thread, between two of its steps: what is graded now is what was meant, or it has ended.
        if self._current in self._cancelled:
            self._current = None
            raise Cancelled

    def _answer(self, request: dict[str, Any]) -> None:
        number, drawn = request["id"], None
        try:
            self._current = number
            if number in self._cancelled:
                raise Cancelled
            verdict, drawn = self._grade(request)
            self._current = None  # from here on it is too late to cancel
            answer = {"kind": "verdict", "verdict": verdict.to_json()}
        except Cancelled:
            answer = {"kind": "cancelled"}
        except Exception as error:
            self._current = None
            answer = {"kind": "error", "text": str(error), "type": type(error).__name__}
        self._tell({"id": number, **answer})
        if drawn:
            run = None
            with contextlib.suppress(Exception):  # the verdict is out: nothing may take it back
                run = drawn()
            self._tell({"id": number, "kind": "run", "run": run and run.to_json()})

    def _grade(self, request: dict[str, Any]) -> tuple[Verdict, Callable[[], OwnRun | None] | None]:
        """The verdict, and, if it was asked for, what makes the run that can be drawn."""
        from ...course import load_course
        from ..judging.own_runs import OwnRuns
        from ..learner.grade_file import grade_file, own_run
        from ..verdict import Result

        def progress(result: Result, done: int, total: int) -> None:
            message = {"kind": "progress", "result": asdict(result), "done": done, "of": total}
            self._tell({"id": request["id"], **message})

        course = load_course(Path(request["root"]))
        exercise = course.exercise(request["exercise"])
        runs = OwnRuns() if request["draw"] else None
        options = {name: request[name] for name in ("source", "seed", "keep")}
        verdict = grade_file(course, exercise, progress=progress, runs=runs, **options)
        return verdict, (lambda: own_run(course, exercise, verdict, runs)) if runs else None

    def _tell(self, answer: dict[str, Any]) -> None:
        try:
            self._out.write(json.dumps(answer) + "\n")
            self._out.flush()
        except BrokenPipeError:  # nobody listens any more; the end of the input follows
            os._exit(0)


def _load() -> None:
    """Load torch here and in the agent, at the same time."""
    from ...runtime.agent.client import get_agent

    agent = get_agent()
    from ..judging import grade  # noqa: F401

    agent.load("dtlearn.grading.on_rank.run_answer")
    agent.load("torch._dynamo")  # as `run_case` does, but while nobody waits


def main(parent: int) -> None:
    """Serve until standard input closes or the process `parent` is gone."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it died before that took effect
        return
    # The real standard output is ours alone: what a library prints goes to the log.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    server = Server(out)
    signal.signal(signal.SIGUSR1, server.on_cancel)
    threading.Thread(target=server.listen, args=(sys.stdin,), daemon=True).start()
    server.serve()
