"""A helper of ours in a new interpreter: the agent, the judge, the bench's other launchers. It ends with its owner."""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..errors import LaunchError
from ..faults.stacks import is_stopped
from .patience import LOOK_AT_THE_SILENT, TO_SAY_HOW_IT_ENDED, Patience
from .processes import has_ended

# The path is appended: it only matters where dtlearn is not installed. The interrupt is the system's: a program that
# was started in the background ignores it, and what it starts would inherit that, down to the ranks.
_BOOT = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.path.append({path!r}); "
    "from {module} import main; main(*map(int, sys.argv[1:]))"
)


class HelperProcess:
    """Runs `main(*arguments)` of a module in a new interpreter. What it prints, and why it failed, is kept in a log.

    It has a session of its own: an interrupt in the terminal or the notebook is for its owner to handle.

    Args:
        module: its full name.
        arguments: whole numbers.
        descriptors: file descriptors that it inherits under their numbers.
        environment: variables besides this process's.
        piped: its standard input and output are pipes, `stdin` and `stdout` here; otherwise it has no input.

    Raises:
        LaunchError: there is no place for its log.
        OSError: it could not be started.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[int] = (),
        *,
        descriptors: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        self._owner, self._pending, self.ending = os.getpid(), b"", "ended"
        try:
            self._log = tempfile.TemporaryFile("w+b", prefix="dtlearn-helper-")  # noqa: SIM115
        except OSError as error:
            raise LaunchError(f"no temporary file can be written ({error}); set TMPDIR to a folder of yours") from error
        boot = _BOOT.format(path=str(Path(__file__).parents[3]), module=module)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", boot, *map(str, arguments)],
                pass_fds=descriptors,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else self._log,
                stderr=self._log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except BaseException:
            self._log.close()
            raise
        self.stdin, self.stdout = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ours(self) -> bool:
        """Whether this process started it: a forked child inherits this object, but not the right to use it."""
        return self._owner == os.getpid()

    @property
    def alive(self) -> bool:
        """Whether it runs, and is ours."""
        return self.ours and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, waiting a moment for that; None if it has not."""
        return self._process.returncode if has_ended(self._process, TO_SAY_HOW_IT_ENDED) else None

    def wait_for(self, answers: Any) -> bool:
        """Wait until it has written to `answers`, or ended; True. If somebody, such as a rank, stops it, it ends."""
        while not select.select([answers], [], [], LOOK_AT_THE_SILENT)[0]:
            if self.alive and is_stopped(self.pid):
                self.ending = "was stopped by a signal, and ended"
                self._process.kill()
                self._process.wait()  # who asks next is to find it ended
        return True

    def last_words(self) -> list[str]:
        """The end of its log."""
        with contextlib.suppress(ValueError):  # closed already: somebody outlived it, and asks
            self._log.seek(0)
            return self._log.read().decode("utf-8", "replace").strip().splitlines()[-15:]
        return []

    def send(self, message: Any) -> None:
        """Write a line of JSON to its input. Raises OSError or ValueError if it has ended."""
        assert self.stdin is not None
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()

    def receive(self, patience: Patience | None) -> Any:
        """The next line of JSON of its output; None if none comes in time. Raises EOFError at its end."""
        assert self.stdout is not None
        while b"\n" not in self._pending:
            if patience is None:
                self.wait_for(self.stdout)
            else:
                while not select.select([self.stdout], [], [], left := patience.left())[0]:
                    if not left:
                        return None
            piece = os.read(self.stdout.fileno(), 1 << 16)
            if not piece:
                raise EOFError
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def close(self, seconds: float) -> None:
        """End it: its input closes, and it has so much time of patience for what is left to do."""
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()
        if not has_ended(self._process, seconds):
            self._process.kill()
            self._process.wait()
        if self.stdout is not None:
            self.stdout.close()
        self._log.close()


class Helper(Protocol):
    """Somebody's end of a helper process."""

    process: HelperProcess

    def end(self) -> None:
        """End the process."""


H = TypeVar("H", bound=Helper)


class OnePerProcess(Generic[H]):
    """The one helper of its kind that a process has: started when it is first asked for, ended at the exit."""

    def __init__(self, start: Callable[[], H]) -> None:
        self._start, self._lock = start, threading.Lock()
        self.current: H | None = None
        atexit.register(self.end)

    def get(self) -> H:
        """This process's helper, started if there is none or it died. It may still be loading."""
        with self._lock:
            if self.current is None or not self.current.process.alive:
                self.end()
                self.current = self._start()
            return self.current

    def end(self) -> None:
        """End this process's, if it has one."""
        if self.current is not None and self.current.process.ours:
            self.current.end()
