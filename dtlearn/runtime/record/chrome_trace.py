"""A record in the Chrome trace event format, which ui.perfetto.dev and chrome://tracing show.

Each rank is a process with tracks for its phases, its calls (and its waits for asynchronous ones), and as many tracks
for asynchronous calls as were under way at a time. An arrow leads from each send to the recv that took it. Times are
in microseconds since the first of the record.

Source of the format: "Trace Event Format" by the Chromium project, sections on duration, complete, flow and metadata
events.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .event import Event
from .record import Record

_PHASES, _CALLS, _ASYNCHRONOUS = 1, 100, 200  # first track of each kind; a slice that does not fit takes the next
_PROCESS = 1000  # number of rank 0's process: Perfetto keeps 0 for the idle one
_Slices = dict[tuple[int, int], tuple[int, float, float]]  # (rank, seq) -> (track, start, end)


class _Tracks:
    """Tracks of one kind on one rank. A viewer wants the slices of a track to lie one after, or inside, the other."""

    def __init__(self, first: int, nested: bool) -> None:
        self.first, self._nested = first, nested
        self.open: list[list[float]] = []  # ends of the slices that are open on each track

    def track_for(self, start: float, end: float) -> int:
        """A track for a slice. Slices come in the order of their starts, outer ones first."""
        for number, ends in enumerate(self.open):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or (self._nested and end <= ends[-1]):
                ends.append(end)
                return self.first + number
        self.open.append([end])
        return self.first + len(self.open) - 1


def save_chrome_trace(record: Record, path: str | Path) -> None:
    """Write the record to a file, such as "step.json", that ui.perfetto.dev and chrome://tracing open."""
    Path(path).write_text(json.dumps(chrome_trace(record)), encoding="utf-8")


def chrome_trace(record: Record) -> dict[str, Any]:
    """The trace as plain values.

    A call that never returned lasts to the end of the trace, and its arguments say so.
    """
    times = [t for e in record for t in (e.start_ns, e.end_ns) if t is not None]
    times += [t for s in record.spans for t in (s.start_ns, s.end_ns) if t is not None]
    first, last = min(times, default=0), max(times, default=0)
    entries: list[dict[str, Any]] = []
    call_slices: _Slices = {}
    for rank in range(record.world_size):
        entries += _rank(record.select(rank=rank), rank, first, last, call_slices)
    for number, (sent, received) in enumerate(record.messages()):
        if received.end_ns is not None:
            entries += _arrow(number, sent, received, call_slices)
    about = {"label": record.label, "incomplete": record.incomplete}
    other = {name: text for name, text in about.items() if text}
    return {"traceEvents": entries, "displayTimeUnit": "ms", "otherData": other}


def _rank(record: Record, rank: int, first: int, last: int, call_slices: _Slices) -> list[dict[str, Any]]:
    def us(ns: int | None) -> float:
        return ((last if ns is None else ns) - first) / 1000

    phases, calls, asynchronous = _Tracks(_PHASES, True), _Tracks(_CALLS, True), _Tracks(_ASYNCHRONOUS, False)
    slices: list[dict[str, Any]] = []
    for span in sorted(record.spans, key=lambda s: (s.start_ns, -us(s.end_ns))):
        start, end = us(span.start_ns), us(span.end_ns)
        slices.append(_slice(span.phase, "phase", rank, phases.track_for(start, end), start, end, {}))
    # (start, end, name, category, call): what the rank itself is in, in the order that tracks need.
    busy: list[tuple[float, float, str, str, Event]] = []
    for event in sorted(record, key=lambda e: (e.start_ns, e.seq)):
        start, end = us(event.start_ns), us(event.end_ns)
        if not event.asynchronous:
            busy.append((start, end, event.op, "call", event))
            continue
        track = asynchronous.track_for(start, end)
        call_slices[rank, event.seq] = (track, start, end)
        slices.append(_slice(event.op, "asynchronous call", rank, track, start, end, _arguments(event)))
        if event.wait_ns is not None and us(event.wait_ns) <= end:
            busy.append((us(event.wait_ns), end, f"wait for {event.op}", "wait", event))
    for start, end, name, category, event in sorted(busy, key=lambda b: (b[0], -b[1])):
        track = calls.track_for(start, end)
        call_slices.setdefault((rank, event.seq), (track, start, end))
        slices.append(_slice(name, category, rank, track, start, end, _arguments(event)))
    kinds = ((phases, "phases"), (calls, "calls"), (asynchronous, "asynchronous calls"))
    names = _named("process", rank, _PHASES, f"rank {rank}", rank)
    for tracks, name in kinds:
        for number in range(tracks.first, tracks.first + len(tracks.open)):
            names += _named("thread", rank, number, name, number)
    return names + slices


def _slice(
    name: str, category: str, rank: int, track: int, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    about = {"pid": _PROCESS + rank, "tid": track}
    return {"name": name, "cat": category, "ph": "X", "ts": start, "dur": end - start, **about, "args": args}


def _arguments(event: Event) -> dict[str, Any]:
    values: dict[str, Any] = {
        "bytes": event.nbytes,
        "group": event.group,
        "dtype": event.dtype,
        "shape": list(event.shape) if event.shape is not None else None,
        "peer" if event.is_p2p else "root": event.peer,
        "phase": event.phase or None,
        "call": event.seq,
        "file": event.file,
        "line": event.line,
        "code": event.code,
        "returned": None if event.end_ns is not None else "never",
        **event.detail,
    }
    return {name: value for name, value in values.items() if value is not None}


def _arrow(number: int, sent: Event, received: Event, call_slices: _Slices) -> Iterable[dict[str, Any]]:
    """An arrow from the beginning of a send to the end of its recv. Each end is tied to the slice around it."""
    about = {"name": "message", "cat": "message", "id": number}
    track, start, _ = call_slices[sent.rank, sent.seq]
    yield {**about, "ph": "s", "ts": start, "pid": _PROCESS + sent.rank, "tid": track}
    track, begun, end = call_slices[received.rank, received.seq]
    arrival = max(begun, start, end - 0.001)
    yield {**about, "ph": "f", "bp": "e", "ts": arrival, "pid": _PROCESS + received.rank, "tid": track}


def _named(what: str, rank: int, track: int, name: str, index: int) -> list[dict[str, Any]]:
    """A name for a process or a track, and its turn among them."""
    about = {"ph": "M", "pid": _PROCESS + rank, "tid": track}
    return [
        {"name": f"{what}_name", **about, "args": {"name": name}},
        {"name": f"{what}_sort_index", **about, "args": {"sort_index": index}},
    ]
