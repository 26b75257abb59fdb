"""The errors that a user of ranks can meet. Each says what happened, on which rank, and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from .record import Event, Record
from .stacks import Frame

if TYPE_CHECKING:
    from .diagnosis import Diagnosis


class DtlearnError(Exception):
    """Base of every error that is meant for a person: its message is the whole story, no traceback is needed.

    Attributes:
        code: stable name of what went wrong, a key of `codes.ADVICE`.
    """

    code = "DTL-USE"

    def _render_traceback_(self) -> list[str]:
        # IPython calls this instead of printing the frames of dtlearn's own code, which would bury the message.
        return wrapped("\n".join([str(self), *getattr(self, "__notes__", ())]))


def wrapped(message: str, width: int = 92) -> list[str]:
    """A message as lines that a notebook shows without breaking words. Indented lines, such as tables, stay whole."""
    lines = []
    for line in message.splitlines():
        lines += [line] if line.startswith((" ", "> ")) else textwrap.wrap(line, width, break_long_words=False) or [""]
    return lines


_NOTICED = 0.1  # seconds
_NO_MEMORY = ("MemoryError", "OutOfMemoryError")
_NO_MEMORY_TEXTS = ("can't allocate memory", "out of memory")


class LaunchError(DtlearnError):
    """The ranks could not be started; nothing ran."""

    code = "DTL-LAUNCH"


class HostLost(LaunchError):
    """A host of a lab is gone: its ranks have ended, and it takes no new ones until it joins again."""


class NotSendable(DtlearnError, ValueError):
    """The function, an argument or a result cannot travel between the notebook and the ranks."""

    code = "DTL-NOT-SENDABLE"


@dataclass(frozen=True)
class Failure:
    """How one rank failed.

    Attributes:
        rank: global rank.
        kind: "raised" (an exception), "ended" (exited without finishing) or "killed" (by a signal).
        type, message: the exception's class name and text; for "killed", the signal's name.
        traceback: formatted text with the learner's own frames, "" when there is none.
        time_ns: monotonic clock of the machine.
        consequence: the text is that of a rank that lost its peer, not of the rank that caused it.
    """

    rank: int
    kind: str
    type: str
    message: str
    traceback: str = ""
    time_ns: int = 0
    consequence: bool = False

    @property
    def code(self) -> str:
        """What kind of failure it is, a key of `codes.ADVICE`."""
        if self.consequence:
            return "DTL-RANK-LOST"
        if self.type in _NO_MEMORY or any(text in self.message for text in _NO_MEMORY_TEXTS):
            return "DTL-OOM"
        if self.kind == "killed":
            return "DTL-RANK-KILLED"
        return "DTL-RANK-EXIT" if self.kind == "ended" or self.type == "SystemExit" else "DTL-RAISED"


def first_cause_first(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Failures in the order in which they explain each other: by time; then ranks that lost a peer; then interrupts.

    The death of a rank is noticed a little later than it happens, when its peers may have failed already; only one
    that aborted (gloo does that to processes) may well be a consequence.
    """

    def key(failure: Failure) -> tuple[bool, bool, float]:
        early = _NOTICED if failure.kind != "raised" and failure.type != "SIGABRT" else 0.0
        interrupted = failure.type == "KeyboardInterrupt"  # ours, when it comes after another failure
        return failure.consequence, interrupted, failure.time_ns - early * 1e9

    return tuple(sorted(failures, key=key))


class RankError(DtlearnError, RuntimeError):
    """A rank failed. The message starts with the first cause; `failures` has all of them, first cause first.

    Attributes:
        failures: one `Failure` per failed rank, the first cause first.
        output: `{rank: text}` printed until then.
        record: what the ranks communicated until then, if the run was recorded.
        last_calls: `{rank: its last calls}`, where they are known.
    """

    record: Record | None = None
    last_calls: Mapping[int, Sequence[Event]] = MappingProxyType({})

    def __init__(self, message: str, failures: tuple[Failure, ...] = (), output: Mapping[int, str] | None = None):
        super().__init__(message)
        self.failures = failures
        self.code = failures[0].code if failures else "DTL-RANK-LOST"
        self.output = dict(output or {})

    @property
    def rank(self) -> int | None:
        """The rank that failed first."""
        return self.failures[0].rank if self.failures else None


class RanksDisagree(RankError):
    """The watch named a fault between ranks: calls that do not fit, or that can never end.

    Attributes:
        diagnosis: which ranks, which calls, which lines; `diagnosis.code` is its stable name.
    """

    def __init__(self, diagnosis: Diagnosis, notes: Sequence[str] = (), output: Mapping[int, str] | None = None):
        super().__init__("\n".join([str(diagnosis), *notes]), (), output)
        self.diagnosis = diagnosis
        self.code = diagnosis.code


@dataclass(frozen=True)
class Stuck:
    """Where one rank stood when it was looked at.

    Attributes:
        rank: global rank.
        state: "returned", "waiting" (inside a communication call) or "running" (its own code).
        call: the unfinished call, as text; "" unless waiting.
        stack: the innermost frames of the learner's code, as text, outermost first.
        frames: the same, as data.
        cpu_seconds: CPU time that its process has used so far; None where that is not known.
    """

    rank: int
    state: str
    call: str = ""
    stack: tuple[str, ...] = ()
    frames: tuple[Frame, ...] = ()
    cpu_seconds: float | None = None


class RanksTimeout(DtlearnError, TimeoutError):
    """The time limit passed. `stuck` says where every rank stood.

    Attributes:
        diagnosis: what two looks at the ranks tell: a loop, slow work, or neither; None where nobody looked.
        stuck: one `Stuck` per rank.
        output: `{rank: text}` printed until then.
        record: what the ranks communicated until then, if the run was recorded.
        last_calls: `{rank: its last calls}`, where they are known.
    """

    record: Record | None = None
    last_calls: Mapping[int, Sequence[Event]] = MappingProxyType({})

    def __init__(
        self,
        message: str,
        stuck: tuple[Stuck, ...] = (),
        output: Mapping[int, str] | None = None,
        diagnosis: Diagnosis | None = None,
    ):
        super().__init__(message)
        self.stuck = stuck
        self.output = dict(output or {})
        self.diagnosis = diagnosis
        self.code = diagnosis.code if diagnosis else "DTL-TIMEOUT"


class RanksInterrupted(KeyboardInterrupt):
    """The learner interrupted a cell on ranks; the message says what was kept and what was re-created."""

    code = "DTL-INTERRUPTED"

    def _render_traceback_(self) -> list[str]:
        return wrapped(str(self))
