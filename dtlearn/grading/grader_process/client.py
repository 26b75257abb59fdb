"""Asks for verdicts, each of a process of its own; what these say is checked: of a known shape and bounded length."""

import contextlib
import json
import signal
import socket
import threading
from typing import Any

from ...runtime.agent.client import AGENT_ENVIRONMENT
from ...runtime.machine.helper_process import HelperProcess
from ..verdict import Result, Verdict
from .grader import MAX_LINE

_SERVER = "dtlearn.grading.grader_process.server"


class Graders:
    """Processes that grade, for several threads; `end` ends them all, and who waits for one hears that."""

    def __init__(self) -> None:
        self._lock, self._ended = threading.Lock(), False
        self._start()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self.process = HelperProcess(_SERVER, [number], descriptors=[number], environment=AGENT_ENVIRONMENT)

    def end(self) -> None:
        """End all of them, now."""
        with self._lock:
            self._ended = True
            self._control.close()
            self.process.close(0.0)

    def grade(self, limit: float, **job: Any) -> tuple[Verdict | Result, int]:
        """The verdict, or why there is none; and the bytes that the grader held at most, beyond those it was forked
        with. `limit` in seconds (see `Patience`), `job` as `grader.work` takes it."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._lock:
                for _ in range(0 if self._ended else 2):
                    if not self.process.alive:
                        self._control.close()
                        self.process.close(0.0)
                        self._start()
                    try:
                        socket.send_fds(self._control, [b"%20.3f" % limit], [theirs.fileno()])
                        break
                    except OSError:  # it ends at this very moment
                        self.process.close(0.0)
            data = b""
            with contextlib.suppress(OSError):  # it ended: that is what we hear then
                ours.sendall(json.dumps(job).encode() + b"\n")
                while self.process.wait_for(ours) and len(data) < 2 * MAX_LINE and (piece := ours.recv(1 << 16)):
                    data += piece
        said: dict[str, Any] = {}
        for line in data.splitlines():
            with contextlib.suppress(ValueError, TypeError, RecursionError):  # it was cut short
                said |= json.loads(line)
        return _outcome(said), int(said.get("peak", 0))


def _outcome(said: dict[str, Any]) -> Verdict | Result:
    with contextlib.suppress(ValueError, RecursionError):
        if "verdict" in said:
            return Verdict.from_json(said["verdict"])
    status = said.get("ended")
    if "error" in said or (status is None and "memory" not in said):  # ours: for a person to look at
        text = f"the grader failed: {said.get('error', 'its process ended')}"
        return Result("", 0, "error", "DTL-GRADER", text, tuple(str(said.get("trace", "")).splitlines()))
    why = "took more than 2 GB of memory" if "memory" in said else "took too long"
    if not said.get("late") and status not in (0, -signal.SIGXCPU):
        why = f"ended the process that read it (status {status})"
    return Result("", 0, "failed", "DTL-LIMIT", f"reading what this hand-in wrote {why}")
