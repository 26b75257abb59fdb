"""How one rank failed, and which failure explains the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ..words import without_middle

# Texts of a rank that lost its peer: consequences, never shown before the cause.
_PEER_LOSS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Pair is not connected",
    "remote process exited",
    "ncclRemoteError",
    "failed to pass monitoredBarrier",
    "Socket Timeout",
    "wait timeout",
)
_NO_MEMORY = ("MemoryError", "_ArrayMemoryError", "OutOfMemoryError", "bad_alloc")
_NO_MEMORY_TEXTS = ("can't allocate memory", "Cannot allocate memory", "std::bad_alloc")
_NOTICED = 0.1  # seconds, after which the death of a rank is known at the latest


def is_peer_loss(message: str) -> bool:
    """Whether an error's text is that of a rank that lost its peer: a consequence, not a cause."""
    return any(text in message for text in _PEER_LOSS)


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

    @classmethod
    def raised(cls, rank: int, type: str, message: str, traceback: str, time_ns: int) -> Self:
        """The failure of a rank that reports an exception of its own."""
        message, traceback = without_middle(message), without_middle(traceback)
        return cls(rank, "raised", type, message, traceback, time_ns, is_peer_loss(message))

    @property
    def is_out_of_memory(self) -> bool:
        """Whether an exception says that memory on the CPU could not be had."""
        return self.type in _NO_MEMORY or any(text in self.message for text in _NO_MEMORY_TEXTS)

    @property
    def code(self) -> str:
        """What kind of failure it is, a key of `faults.codes.ADVICE`."""
        if self.consequence:
            return "DTL-RANK-LOST"
        if self.is_out_of_memory or "out of memory" in self.message:  # of a GPU, or said of a rank that was killed
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
