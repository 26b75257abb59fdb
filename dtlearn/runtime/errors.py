"""The errors that a user of ranks can meet. Each says what happened, on which rank, and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .record import Record

if TYPE_CHECKING:
    from .diagnosis import Diagnosis


class DtlearnError(Exception):
    """Base of every error that is meant for a person: its message is the whole story, no traceback is needed."""

    def _render_traceback_(self) -> list[str]:
        # IPython calls this instead of printing the frames of dtlearn's own code, which would bury the message.
        return wrapped(str(self))


def wrapped(message: str, width: int = 92) -> list[str]:
    """A message as lines that a notebook shows without breaking words. Indented lines, such as tables, stay whole."""
    lines = []
    for line in message.splitlines():
        lines += [line] if line.startswith(" ") else textwrap.wrap(line, width, break_long_words=False) or [""]
    return lines


class LaunchError(DtlearnError):
    """The ranks could not be started; nothing ran."""


class NotSendable(DtlearnError, ValueError):
    """The function, an argument or a result cannot travel between the notebook and the ranks."""


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


class RankError(DtlearnError, RuntimeError):
    """A rank failed. The message starts with the first cause; `failures` has all of them, first cause first.

    Attributes:
        failures: one `Failure` per failed rank, the first cause first.
        output: `{rank: text}` printed until then.
        record: what the ranks communicated until then, if the run was recorded.
    """

    record: Record | None = None

    def __init__(self, message: str, failures: tuple[Failure, ...] = (), output: Mapping[int, str] | None = None):
        super().__init__(message)
        self.failures = failures
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


@dataclass(frozen=True)
class Stuck:
    """Where one rank stood when the time was up.

    Attributes:
        rank: global rank.
        state: "returned", "waiting" (inside a communication call) or "running" (its own code).
        call: the unfinished call, as text; "" unless waiting.
        stack: the innermost frames of the learner's code, as text, outermost first.
    """

    rank: int
    state: str
    call: str = ""
    stack: tuple[str, ...] = field(default=())


class RanksTimeout(DtlearnError, TimeoutError):
    """The time limit passed. `stuck` says where every rank stood.

    Attributes:
        stuck: one `Stuck` per rank.
        output: `{rank: text}` printed until then.
        record: what the ranks communicated until then, if the run was recorded.
    """

    record: Record | None = None

    def __init__(self, message: str, stuck: tuple[Stuck, ...] = (), output: Mapping[int, str] | None = None):
        super().__init__(message)
        self.stuck = stuck
        self.output = dict(output or {})


class RanksInterrupted(KeyboardInterrupt):
    """The learner interrupted a cell on ranks; the message says what was kept and what was re-created."""

    def _render_traceback_(self) -> list[str]:
        return wrapped(str(self))
