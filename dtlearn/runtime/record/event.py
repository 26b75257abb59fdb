"""What a record is made of: calls and phases of ranks."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .operations import P2P_OPS, SENDS, peer_word


@dataclass(frozen=True)
class Event:
    """One call on one rank.

    Attributes:
        rank: global rank that made the call.
        seq: number of this call on this rank, from 0, over all groups.
        op: name in `torch.distributed`, such as "all_reduce" or "send".
        group: "world", or the ranks of a sub-group, such as "0,2".
        group_seq: number of this call on this rank within its group, from 0 (collectives and p2p apart).
        nbytes: payload in bytes: the tensor that this rank hands in (or receives into, for a pure receiver).
        dtype, shape: of that tensor; for a list of tensors, of the first.
        peer: global rank at the other end (p2p), or the root (rooted collectives); None otherwise.
        detail: reduce op, tag and the like, as plain values; "raised" names the exception of a call that raised;
            "hidden": it did not come through a function of `torch.distributed` (DDP's reducer, DTensor, ...);
            "unseen": its end cannot be known; "coalesced": so many tensors travel in this one call; "at", "of" (send
            and receive): where in its storage the payload begins, and the size of that, in bytes; "splits": elements to
            and from each rank of the group; "thread": which thread made the call, if not the main one;
            "handed_over": in a graded run a function that the check handed to the answer made it, at the answer's line;
            "strided": a tensor is not contiguous, which gloo takes in some calls, and NCCL in none; "device": a tensor
            is not on the rank's device, but on this one; "batch": messages of one rank with the same number were handed
            over at once; "for_gloo": the package's collectives made the call, and make another with NCCL, or its
            group was asked to be gloo's.
        start_ns, end_ns: monotonic clock of this machine; `end_ns` is None if the call never returned (or raised).
        asynchronous: the call returned a Work; `end_ns` is then when `wait()` returned, or, for a call that torch's
            C++ issued, when the data had arrived.
        file, line, code: the caller's source line.
        wait_ns: when `wait()` was called on an asynchronous call; None if it was not, or is not seen.
        arrived_ns: when the data of an asynchronous collective of Python code had arrived, on CPU tensors; None: not
            known. `end_ns` is later if the rank had other things to do before it waited.
        phase: what the rank did meanwhile: "forward", "backward", "step", the name given to `dtlearn.phase`, or "".
    """

    rank: int
    seq: int
    op: str
    group: str
    group_seq: int
    nbytes: int
    dtype: str | None
    shape: tuple[int, ...] | None
    peer: int | None
    detail: dict[str, Any]
    start_ns: int
    end_ns: int | None
    asynchronous: bool
    file: str
    line: int
    code: str = ""
    wait_ns: int | None = None
    phase: str = ""
    arrived_ns: int | None = None

    @property
    def is_p2p(self) -> bool:
        return self.op in P2P_OPS

    @property
    def sends(self) -> bool:
        """Whether it is the sender's half of a message."""
        return self.op in SENDS

    @property
    def receives(self) -> bool:
        """Whether it is the receiver's half of a message."""
        return self.is_p2p and not self.sends

    @property
    def group_key(self) -> str:
        """The group, told apart from another one of the same ranks by torch's own name of it."""
        return f"{self.group}|{self.detail.get('group_id', '')}"

    @property
    def seconds(self) -> float | None:
        """Duration of the call in seconds; None if it never returned."""
        return None if self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "unknown line"
        peer = "" if self.peer is None else f" {peer_word(self.op)} {self.peer}"
        return f"rank {self.rank} call #{self.seq}: {self.op}{peer} ({self.nbytes} bytes) at {where}"


@dataclass(frozen=True)
class Span:
    """A phase of one rank, such as one backward pass. Phases can lie inside each other.

    Attributes:
        rank: global rank.
        phase: "forward", "backward", "step", or the name given to `dtlearn.phase`.
        start_ns, end_ns: on the same clock as those of events; `end_ns` is None if the rank never left the phase.
    """

    rank: int
    phase: str
    start_ns: int
    end_ns: int | None


class Mark(NamedTuple):
    """That a graded rank said `label`, and stood still from `came_ns` to `answered_ns` of the grader's clock.

    `logged`: lines in its call log then; a call stands there before it is made. What it proves: `checks/marks.py`.
    """

    rank: int
    label: str
    came_ns: int
    answered_ns: int
    logged: int
