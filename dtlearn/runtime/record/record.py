"""What the ranks said to each other, as data: one format for everything that communicates.

A `Record` is a list of `Event`s from all ranks of one run. The recorder (`recording/`) writes it on the ranks;
figures, tests, budgets and the grader read it here. This file needs neither torch nor a process group.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .operations import P2P_OPS

FORMAT = 3  # of `to_json`; 1 had no phases, 2 no arrivals


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
            and receive): where in its storage the payload begins, and the size of that, in bytes.
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
    def seconds(self) -> float | None:
        """Duration of the call in seconds; None if it never returned."""
        return None if self.end_ns is None else (self.end_ns - self.start_ns) / 1e9

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else "unknown line"
        peer = "" if self.peer is None else f" {'to' if 'send' in self.op else 'from'} {self.peer}"
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


@dataclass(frozen=True)
class Record:
    """The recorded communication of one run.

    Attributes:
        world_size: number of ranks in the run.
        events: all calls of all ranks, ordered by rank, then by call number.
        label: said in every figure that is drawn from this record ("gloo on CPU", "emulated link", ...).
        spans: phases of all ranks, ordered by rank, then by time.
        incomplete: why something is missing, in a sentence ("the record of rank 1 is incomplete: ..."); "" if all is
            there.
    """

    world_size: int
    events: tuple[Event, ...] = field(default=())
    label: str = ""
    spans: tuple[Span, ...] = field(default=())
    incomplete: str = ""

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def select(
        self, *, rank: int | None = None, op: str | None = None, group: str | None = None, phase: str | None = None
    ) -> Record:
        """The part of the record with that rank, op, group and phase (None: any). Spans are selected by rank and phase.

        A call is in the innermost phase only; `phase=""` selects calls outside all phases.
        """
        events = (
            e
            for e in self.events
            if (rank is None or e.rank == rank)
            and (op is None or e.op == op)
            and (group is None or e.group == group)
            and (phase is None or e.phase == phase)
        )
        spans = (s for s in self.spans if (rank is None or s.rank == rank) and (phase is None or s.phase == phase))
        return replace(self, events=tuple(events), spans=tuple(spans))

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

    def messages(self) -> list[tuple[Event, Event]]:
        """Every send with the recv that took it: the n-th of each (sender, receiver, group, tag) on both sides.

        A send or recv without partner, and a recv from any source, are left out.
        """
        ends: dict[tuple[object, ...], tuple[list[Event], list[Event]]] = defaultdict(lambda: ([], []))
        for event in self.events:
            if event.is_p2p and event.peer is not None:
                sends = event.op in ("send", "isend")
                way = (event.rank, event.peer) if sends else (event.peer, event.rank)
                key = (*way, event.group, event.detail.get("group_id", ""), event.detail.get("tag", 0))
                ends[key][not sends].append(event)
        return [pair for sent, received in ends.values() for pair in zip(sent, received, strict=False)]

    def to_chrome_trace(self) -> str:
        """The record as text that ui.perfetto.dev and chrome://tracing open; see `chrome_trace.py`."""
        from .chrome_trace import chrome_trace

        return json.dumps(chrome_trace(self))

    def save_chrome_trace(self, path: str | Path) -> None:
        """Write `to_chrome_trace()` to a file, such as "step.json". Open it at ui.perfetto.dev."""
        Path(path).write_text(self.to_chrome_trace(), encoding="utf-8")

    def to_json(self) -> str:
        """The record as text; `from_json` reads it back. Times stay in ns."""
        return json.dumps(
            {
                "format": FORMAT,
                "world_size": self.world_size,
                "label": self.label,
                "events": [asdict(e) for e in self.events],
                "spans": [asdict(s) for s in self.spans],
                "incomplete": self.incomplete,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read what `to_json` wrote. Raises ValueError for another format."""
        data = json.loads(text)
        if data.get("format") not in (1, 2, FORMAT):
            raise ValueError(f"this record has format {data.get('format')!r}; this version reads formats 1 to {FORMAT}")
        events = [Event(**{**e, "shape": None if e["shape"] is None else tuple(e["shape"])}) for e in data["events"]]
        spans = tuple(Span(**span) for span in data.get("spans", ()))
        return cls(data["world_size"], tuple(events), data["label"], spans, data.get("incomplete", ""))


def merge(
    world_size: int,
    per_rank: Iterable[Iterable[Event]],
    label: str = "",
    spans: Iterable[Span] = (),
    incomplete: str = "",
) -> Record:
    """One record from the events of every rank."""
    events = sorted((e for events in per_rank for e in events), key=lambda e: (e.rank, e.seq))
    ordered = sorted(spans, key=lambda s: (s.rank, s.start_ns))
    return Record(world_size, tuple(events), label, tuple(ordered), incomplete)
