"""Stragglers: which rank is late, by how much, why, and what that costs all others; read from a record.

A collective takes as long as its last rank. So a step's last arrival says who was waited for, and what that rank did
since the collective before says why: its input came late, or its computation took longer. A rank with a slow network
arrives in time, and its messages take longer: that shows in messages between two ranks (`send` and `recv`), not in an
all-reduce, which is slow for everybody.

One late step is noise: a processor that was busy, a collection of garbage. Lateness is a median over steps, compared
with how much the other ranks scatter.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from dtlearn.runtime.record.collectives import collectives
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks

KINDS = ("input", "compute", "network")
INPUT = "input"  # the phase in which a rank waits for its data: `with dtlearn.phase("input"): ...`
_TIMES_NOISE = 4.0  # a straggler's lateness is so many times the scatter of the others
_PART_OF_STEP = 0.1  # and at least this part of a step


@dataclass(frozen=True)
class RankRow:
    """One rank over all steps; medians, in seconds.

    Attributes:
        rank: global rank.
        lateness: of its arrival, after the median of the other ranks; negative if it is early.
        last: part of the steps in which it came last, 0 to 1.
        input, compute: seconds from the end of one collective to its arrival in the next: in the phase "input", and in
            all else.
        network: seconds of its messages with the neighbour that is reached faster; None if it sends none.
        waits: seconds per step in which it waits for the last rank.
    """

    rank: int
    lateness: float
    last: float
    input: float
    compute: float
    network: float | None
    waits: float


@dataclass(frozen=True)
class Straggler:
    """A rank that holds the others up.

    Attributes:
        rank: global rank.
        kind: "input", "compute" or "network".
        seconds: per step, more than the other ranks need for it.
    """

    rank: int
    kind: str
    seconds: float


@dataclass(frozen=True)
class StragglerReport:
    """What a record says of stragglers.

    Attributes:
        rows: of each rank.
        stragglers: the worst first; none if nobody stands out.
        steps: how many were compared.
        step_seconds: median time from one collective's end to the next one's.
        waits_per_step: seconds that all ranks together wait for the last one, at the collective, in a step: the median.
    """

    rows: tuple[RankRow, ...]
    stragglers: tuple[Straggler, ...]
    steps: int
    step_seconds: float
    waits_per_step: float

    @property
    def lost_per_step(self) -> float:
        """Seconds of all other ranks together that a step takes longer because of its worst straggler."""
        return (len(self.rows) - 1) * self.stragglers[0].seconds if self.stragglers else 0.0


def find_stragglers(record: Record, op: str = "all_reduce") -> StragglerReport:
    """Compare the ranks of a record, step by step; a step ends with a collective of all ranks.

    Args:
        record: of a run with `record=True`.
        op: the collective that ends a step. If a step has several, each ends one.

    Raises:
        ValueError: fewer than two such collectives, or fewer than two ranks.
    """
    ranks = range(record.world_size)
    ends = [
        calls
        for calls in collectives(e for e in record.events if e.op == op)
        if len(calls) == record.world_size and all(call.end_ns is not None for call in calls.values())
    ]
    ends.sort(key=lambda calls: min(call.start_ns for call in calls.values()))
    if len(ends) < 2 or record.world_size < 2:
        raise ValueError(
            f"expected two or more calls of {op} that all of 2 or more ranks made; got {len(ends)} on "
            f"{record.world_size}: record more steps, or name the collective that ends a step with op="
        )
    late: dict[int, list[float]] = defaultdict(list)
    spent: dict[tuple[int, str], list[float]] = defaultdict(list)
    waits: dict[int, list[float]] = defaultdict(list)
    last: list[int] = []
    for before, calls in itertools.pairwise(ends):
        arrivals = {rank: calls[rank].start_ns / 1e9 for rank in ranks}
        last.append(max(ranks, key=arrivals.__getitem__))
        for rank in ranks:
            others = [arrivals[other] for other in ranks if other != rank]
            late[rank].append(arrivals[rank] - median(others))
            waits[rank].append(max(arrivals.values()) - arrivals[rank])
            begin = before[rank].end_ns or 0
            waiting = _inside(record, rank, INPUT, begin, calls[rank].start_ns)
            sending = _in_messages(record, rank, begin, calls[rank].start_ns)
            spent[rank, "input"].append(waiting)
            spent[rank, "compute"].append(arrivals[rank] - begin / 1e9 - waiting - sending)
    edges = _edges(record, ends)
    rows = tuple(
        RankRow(
            rank,
            median(late[rank]),
            last.count(rank) / len(last),
            median(spent[rank, "input"]),
            median(spent[rank, "compute"]),
            min((seconds for edge, seconds in edges.items() if rank in edge), default=None),
            median(waits[rank]),
        )
        for rank in ranks
    )
    periods = [(b[0].end_ns or 0) - (a[0].end_ns or 0) for a, b in itertools.pairwise(ends)]
    step = median(periods) / 1e9
    per_step = median(sum(waits[rank][k] for rank in ranks) for k in range(len(last)))
    return StragglerReport(rows, _stand_out(rows, late, step), len(last), step, per_step)


def _stand_out(rows: tuple[RankRow, ...], late: dict[int, list[float]], step: float) -> tuple[Straggler, ...]:
    """The ranks that need more than the others for something, beyond noise."""
    found = []
    for row in rows:
        others = [other for other in rows if other.rank != row.rank]
        # How far single steps lie from the median of their rank, of all others.
        scatter = median(abs(x - other.lateness) for other in others for x in late[other.rank])
        least = max(_TIMES_NOISE * scatter, _PART_OF_STEP * step)
        more = {
            "input": row.input - median(other.input for other in others),
            "compute": row.compute - median(other.compute for other in others),
        }
        if row.network is not None:
            slowest = max((other.network for other in others if other.network is not None), default=row.network)
            more["network"] = row.network - slowest
        kind = max(more, key=more.__getitem__)
        if more[kind] > least:
            found.append(Straggler(row.rank, kind, more[kind]))
    return tuple(sorted(found, key=lambda s: -s.seconds))


def _inside(record: Record, rank: int, phase: str, begin: int, end: int) -> float:
    """Seconds of a rank in a phase, between two times in ns."""
    spans = (s for s in record.spans if s.rank == rank and s.phase == phase)
    return sum(max(0, min(s.end_ns or end, end) - max(s.start_ns, begin)) for s in spans) / 1e9


def _in_messages(record: Record, rank: int, begin: int, end: int) -> float:
    """Seconds of a rank from its first message to its last, between two times in ns."""
    mine = [e for e in record.events if e.rank == rank and e.is_p2p and begin <= e.start_ns < end]
    if not mine:
        return 0.0
    return (max(e.end_ns or end for e in mine) - min(e.start_ns for e in mine)) / 1e9


def _edges(record: Record, ends: list[dict[int, Event]]) -> dict[tuple[int, int], float]:
    """{(sender, receiver): median seconds of a step's messages}, from when both are ready for the first of them."""
    by_step: dict[tuple[int, int], dict[int, list[tuple[Event, Event]]]] = defaultdict(lambda: defaultdict(list))
    for send, receive in record.messages():
        step = sum((calls[send.rank].end_ns or 0) <= send.start_ns for calls in ends)  # ranks leave at different times
        by_step[send.rank, receive.rank][step].append((send, receive))
    return {edge: median(_transfer(messages) for messages in steps.values()) for edge, steps in by_step.items()}


def _transfer(messages: Iterable[tuple[Event, Event]]) -> float:
    pairs = list(messages)
    ready = max(min(send.start_ns for send, _ in pairs), min(receive.start_ns for _, receive in pairs))
    return (max(receive.end_ns or ready for _, receive in pairs) - ready) / 1e9


def slow_run(
    kind: str = "", rank: int = 1, seconds: float = 0.05, *, ranks: int = 3, steps: int = 8, work: float = 0.02
) -> Record:
    """Train on real ranks, one of them slow, and return the record.

    Args:
        kind: "input" (its data comes late), "compute" (its backward pass takes longer), "network" (its messages leave
            and arrive in pieces with pauses), or "": nobody is slow.
        rank: which one.
        seconds: per step, how much longer it needs.
        ranks, steps, work: of the run, and the seconds that each rank computes in a step.

    Raises:
        ValueError: another kind, or no such rank.
    """
    if kind not in ("", *KINDS) or not 0 <= rank < ranks:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, or '', and rank below {ranks}; got {kind!r}, {rank}")
    return run_ranks(_slow_rank, ranks, kind, rank, seconds, steps, work, device="cpu", record=True).record


def _slow_rank(kind: str, slow: int, seconds: float, steps: int, work: float) -> None:
    """What a rank does: a message to the right neighbour, input, computation, and an all-reduce."""
    rank = dist.get_rank()
    gradient = torch.ones(1 << 12)  # (n,)
    extra: dict[str, float] = defaultdict(float)
    if rank == slow:
        extra[kind] = seconds
    for _ in range(steps):
        _pass_to_the_right(gradient, extra["network"])
        with phase(INPUT):
            time.sleep(0.002 + extra["input"])
        time.sleep(work + extra["compute"])
        dist.all_reduce(gradient)


def _pass_to_the_right(tensor: torch.Tensor, pause: float, pieces: int = 4) -> None:
    """Send a tensor to the right and take one from the left, in pieces, with pauses between them: a slow port."""
    rank, size = dist.get_rank(), dist.get_world_size()
    arriving = [torch.empty_like(piece) for piece in tensor.chunk(pieces)]
    sends, receives = [], []
    for number, (piece, buffer) in enumerate(zip(tensor.chunk(pieces), arriving, strict=True)):
        if number:
            time.sleep(pause / (pieces - 1))
        sends.append(dist.isend(piece, (rank + 1) % size))
        receives.append(dist.irecv(buffer, (rank - 1) % size))
    for call in [*receives, *sends]:  # the receives first: a slow neighbour on the right must not hide a fast one
        assert call is not None
        call.wait()
    tensor.copy_(torch.cat(arriving))
