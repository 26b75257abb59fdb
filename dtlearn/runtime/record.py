"""What the ranks said to each other, as data: one format for everything that communicates.

A `Record` is a list of `Event`s from all ranks of one run. The recorder (`recorder.py`) writes it on the ranks;
figures, tests, budgets and the grader read it here. This file needs neither torch nor a process group.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

# What an operation is: the chapters, the figures and the budgets tell collectives and point-to-point apart.
P2P_OPS = frozenset({"send", "recv", "isend", "irecv"})


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
            "hidden": torch issued the call itself (DDP, FSDP2, DTensor); "unseen": its end cannot be known.
        start_ns, end_ns: monotonic clock of this machine; `end_ns` is None if the call never returned (or raised).
        asynchronous: the call returned a Work; `end_ns` is then when `wait()` returned, or, for a call that torch's
            C++ issued, when the data had arrived.
        file, line, code: the caller's source line.
        wait_ns: when `wait()` was called on an asynchronous call; None if it was not, or is not seen.
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

    @property
    def is_p2p(self) -> bool:
        return self.op in P2P_OPS

    @property
    def seconds(self) -> float | None:
        """Duration of the call in seconds; None if it never returned."""
        return None if self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "unknown line"
        peer = "" if self.peer is None else f" {'to' if 'send' in self.op else 'from'} {self.peer}"
        return f"rank {self.rank} call #{self.seq}: {self.op}{peer} ({self.nbytes} bytes) at {where}"


@dataclass(frozen=True)
class Record:
    """The recorded communication of one run.

    Attributes:
        world_size: number of ranks in the run.
        events: all calls of all ranks, ordered by rank, then by call number.
        label: said in every figure that is drawn from this record ("gloo on CPU", "emulated link", ...).
    """

    world_size: int
    events: tuple[Event, ...] = field(default=())
    label: str = ""

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def select(self, *, rank: int | None = None, op: str | None = None, group: str | None = None) -> Record:
        """The part of the record with that rank, op and group (None: any)."""
        keep = (
            e
            for e in self.events
            if (rank is None or e.rank == rank) and (op is None or e.op == op) and (group is None or e.group == group)
        )
        return replace(self, events=tuple(keep))

    def nbytes(self, **which: Any) -> int:
        """Payload bytes of the selected calls (see `select`), summed over ranks."""
        return sum(e.nbytes for e in self.select(**which))

    def counts(self) -> Counter[tuple[int, str]]:
        """How many calls each rank made: `{(rank, op): calls}`."""
        return Counter((e.rank, e.op) for e in self.events)

    def unfinished(self) -> tuple[Event, ...]:
        """Calls that never returned: where a hang sits."""
        return tuple(e for e in self.events if e.end_ns is None)

    def span_ns(self) -> tuple[int, int]:
        """First start and last end (or start, for a call that never returned), in ns; (0, 0) if empty."""
        if not self.events:
            return (0, 0)
        return (
            min(e.start_ns for e in self.events),
            max(e.end_ns if e.end_ns is not None else e.start_ns for e in self.events),
        )

    def to_json(self) -> str:
        """The record as text; `from_json` reads it back. Times stay in ns."""
        return json.dumps(
            {
                "format": 1,
                "world_size": self.world_size,
                "label": self.label,
                "events": [asdict(e) for e in self.events],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read what `to_json` wrote. Raises ValueError for another format."""
        data = json.loads(text)
        if data.get("format") != 1:
            raise ValueError(f"this record has format {data.get('format')!r}; this version reads format 1")
        events = [Event(**{**e, "shape": None if e["shape"] is None else tuple(e["shape"])}) for e in data["events"]]
        return cls(world_size=data["world_size"], events=tuple(events), label=data["label"])


def merge(world_size: int, per_rank: Iterable[Iterable[Event]], label: str = "") -> Record:
    """One record from the events of every rank."""
    events = sorted((e for events in per_rank for e in events), key=lambda e: (e.rank, e.seq))
    return Record(world_size=world_size, events=tuple(events), label=label)
