"""The errors that a user of ranks can meet. Each says what happened, on which rank, and what to do."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .faults.diagnosis import Diagnosis
from .faults.failure import Failure
from .faults.stacks import Stuck
from .record.event import Event
from .record.record import Record
from .words import wrapped


class DtlearnError(Exception):
    """Base of every error that is meant for a person: its message is the whole story, no traceback is needed.

    Attributes:
        code: stable name of what went wrong, a key of `faults.codes.ADVICE`.
    """

    code = "DTL-USE"

    def add_lines(self, lines: Sequence[str]) -> None:
        """Add to the message what became of the ranks then."""
        self.args = ("\n".join([str(self), *lines]),)

    def _render_traceback_(self) -> list[str]:
        # IPython calls this instead of printing the frames of dtlearn's own code, which would bury the message.
        return wrapped("\n".join([str(self), *getattr(self, "__notes__", ())]))


class LaunchError(DtlearnError):
    """The ranks could not be started; nothing ran."""

    code = "DTL-LAUNCH"


class HostLost(LaunchError):
    """A host of a lab is gone: its ranks have ended, and it takes no new ones until it joins again."""


class NotSendable(DtlearnError, ValueError):
    """The function, an argument or a result cannot travel between the notebook and the ranks."""

    code = "DTL-NOT-SENDABLE"


class _RanksEnded(DtlearnError):
    """What is known of ranks that did not do what they were asked.

    Attributes:
        output: `{rank: text}` printed until then.
        record: what the ranks communicated until then, if the run was recorded.
        last_calls: `{rank: its last calls}`, where they are known.
        lost: the ranks of a notebook whose variables are lost.
    """

    record: Record | None = None
    last_calls: Mapping[int, Sequence[Event]] = MappingProxyType({})
    lost: tuple[int, ...] = ()

    def __init__(self, message: str, output: Mapping[int, str] | None) -> None:
        super().__init__(message)
        self.output = dict(output or {})


class RankError(_RanksEnded, RuntimeError):
    """A rank failed. The message starts with the first cause.

    Attributes:
        failures: one `Failure` per failed rank, the first cause first.
    """

    def __init__(self, message: str, failures: tuple[Failure, ...] = (), output: Mapping[int, str] | None = None):
        super().__init__(message, output)
        self.failures = failures
        self.code = failures[0].code if failures else "DTL-RANK-LOST"

    @property
    def rank(self) -> int | None:
        """The rank that failed first."""
        return self.failures[0].rank if self.failures else None


class RanksDisagree(RankError):
    """The watch named a fault between ranks: calls that do not fit, or that can never end.

    Attributes:
        diagnosis: which ranks, which calls, which lines; `diagnosis.code` is its stable name.
    """

    def __init__(self, diagnosis: Diagnosis, output: Mapping[int, str] | None = None):
        super().__init__(str(diagnosis), (), output)
        self.diagnosis = diagnosis
        self.code = diagnosis.code


class RanksTimeout(_RanksEnded, TimeoutError):
    """The time limit passed. `stuck` says where every rank stood.

    Attributes:
        diagnosis: what two looks at the ranks tell: a loop, slow work, or neither; None where nobody looked.
        stuck: one `Stuck` per rank.
    """

    def __init__(
        self,
        message: str,
        stuck: tuple[Stuck, ...] = (),
        output: Mapping[int, str] | None = None,
        diagnosis: Diagnosis | None = None,
    ):
        super().__init__(message, output)
        self.stuck = stuck
        self.diagnosis = diagnosis
        self.code = diagnosis.code if diagnosis else "DTL-TIMEOUT"


class RanksInterrupted(KeyboardInterrupt):
    """The learner interrupted ranks, or their grading; the message says what was kept and what was re-created."""

    code = "DTL-INTERRUPTED"

    def _render_traceback_(self) -> list[str]:
        return wrapped(str(self))


class CellError(RankError):
    """A `RankError` that shows in the notebook as the failing rank's own traceback."""

    def _render_traceback_(self) -> list[str]:
        traceback = self.failures[0].traceback
        return [*wrapped(str(self)), *(["", *traceback.splitlines()] if traceback else [])]
