"""All that one rank logged, read back: its calls and its phases; and the record that the logs of all ranks make."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from .calls import read_call_log
from .incomplete import incomplete
from .record import Event, Record, Span, merge


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
