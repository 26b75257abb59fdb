"""All that one rank logged, read back: its calls and its phases; and the record that the logs of all ranks make."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..words import incomplete
from .event import Event, Span
from .record import Record, merge


@dataclass(frozen=True)
class RankLog:
    """What one rank logged; `fault` says why it is incomplete, "" if it is not."""

    rank: int
    events: list[Event]
    spans: list[Span]
    fault: str = ""


def read_rank_log(path: Path, rank: int, fault: str = "") -> RankLog:
    """Calls and phases of one rank; `path` is that of its call log."""
    return RankLog(rank, read_call_log(path, rank), read_spans(path, rank), fault)


def merge_logs(world_size: int, logs: list[RankLog], label: str) -> Record:
    """One record from the logs of ranks."""
    spans = [span for log in logs for span in log.spans]
    return merge(world_size, [log.events for log in logs], label, spans, incomplete({g.rank: g.fault for g in logs}))


def spans_file(path: Path) -> Path:
    """Where the phases of a rank are, next to its call log."""
    return path.with_suffix(".spans")


def read_spans(path: Path, rank: int) -> list[Span]:
    """The phases of one rank; `path` is that of its call log."""
    begun: dict[int, Span] = {}
    try:
        lines = spans_file(path).read_bytes().splitlines()
    except FileNotFoundError:  # it never entered a phase
        return []
    for text in lines:
        with contextlib.suppress(ValueError, KeyError):
            line = json.loads(text)
            if "end_ns" in line:
                begun[line["span"]] = replace(begun[line["span"]], end_ns=line["end_ns"])
            else:
                begun[line["span"]] = Span(rank, line["phase"], line["start_ns"], None)
    return list(begun.values())


def read_call_log(path: Path, rank: int) -> list[Event]:
    """The calls of one rank. A last line that was cut short, by a kill, is left out."""
    begun: dict[int, dict[str, Any]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:  # the rank ended before its first call
        return []
    for text in lines:
        with contextlib.suppress(ValueError):
            take_line(begun, json.loads(text))
    first = min(begun, default=0)  # a cell's calls count from 0, whatever its rank did before
    return [to_event(rank, {**call, "seq": call["seq"] - first}) for call in begun.values()]


def take_line(begun: dict[int, dict[str, Any]], line: dict[str, Any]) -> None:
    """Add one line of a log to the calls that it has begun: a call, what became of it, or its end."""
    if "end" in line:
        if call := begun.get(line["end"]):
            call["end_ns"] = line.get("end_ns")
            call["nbytes"] = line.get("nbytes", call["nbytes"])
            call["detail"].update({k: line[k] for k in ("raised", "unseen") if k in line})
    elif "wait" in line:
        if call := begun.get(line["wait"]):
            call["wait_ns"] = line["wait_ns"]
    elif "arrived" in line:
        if call := begun.get(line["arrived"]):
            call["arrived_ns"] = line["arrived_ns"]
    elif "dropped" in line:
        if call := begun.get(line["dropped"]):
            call["detail"]["dropped"] = True
    else:
        begun[line["seq"]] = {**line, "end_ns": None}


def to_event(rank: int, call: dict[str, Any]) -> Event:
    """A call as the log has it, as an event."""
    shape = None if call["shape"] is None else tuple(call["shape"])
    return Event(rank=rank, **{**call, "shape": shape})
