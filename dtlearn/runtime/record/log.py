"""All that one rank logged, read back: its calls and its phases; and the record that the logs of all ranks make."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..words import incomplete
from .event import Event, Span
from .rank_file import Tampered, read_rank_file
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
    for line in _lines(spans_file(path), rank):
        if "end_ns" not in line:
            begun[line["span"]] = Span(rank, line["phase"], line["start_ns"], None)
        elif span := begun.get(line["span"]):
            begun[line["span"]] = replace(span, end_ns=line["end_ns"])
    return list(begun.values())


def read_call_log(path: Path, rank: int) -> list[Event]:
    """The calls of one rank."""
    begun: dict[int, dict[str, Any]] = {}
    for line in _lines(path, rank):
        take_line(begun, line)
    first = min(begun, default=0)  # a cell's calls count from 0, whatever its rank did before
    return [to_event(rank, {**call, "seq": call["seq"] - first}) for call in begun.values()]


def _lines(path: Path, rank: int) -> Iterator[dict[str, Any]]:
    """The lines of a file, but a last one that a kill cut short; none if the rank ended before it wrote any."""
    with contextlib.suppress(FileNotFoundError):
        *lines, last = read_rank_file(path).split(b"\n")
        yield from (read_line(text, rank) for text in lines)
        if last:
            with contextlib.suppress(Tampered):
                yield read_line(last, rank)


_OF_KIND: dict[type, str] = {
    int: "seq group_seq nbytes start_ns line end wait arrived dropped span peer end_ns wait_ns arrived_ns",
    str: "op group file code phase raised dtype",
    list: "shape",
    dict: "detail",
    bool: "asynchronous unseen",
}
_KINDS = {name: kind for kind, names in _OF_KIND.items() for name in names.split()}
_MAY_BE_NONE = {"dtype", "shape", "peer", "end_ns"}
_CALL = {"op", "group", "group_seq", "nbytes", "detail", "start_ns", "asynchronous", "file", "line", *_MAY_BE_NONE}
_ABOUT = {"seq", "end", "wait", "arrived", "dropped", "span"}


def read_line(text: bytes, rank: int) -> dict[str, Any]:
    """One line of a log. Raises Tampered if it is not of the recorder's form."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError, KeyError):
        line: dict[str, Any] = json.loads(text)
        fits = all(isinstance(v, _KINDS[name]) or (v is None and name in _MAY_BE_NONE) for name, v in line.items())
        if fits and len(_ABOUT & line.keys()) == 1 and ("seq" not in line or _CALL - {"end_ns"} <= line.keys()):
            return line
    raise Tampered(f"the record of calls of rank {rank} has a line that the recorder did not write")


def take_line(begun: dict[int, dict[str, Any]], line: dict[str, Any]) -> int:
    """Add one line of a log to the calls that it has begun: a call, or what became of it. Returns the call's number."""
    if "seq" in line:
        begun[line["seq"]] = {**line, "end_ns": None}
        return int(line["seq"])
    kind = next(kind for kind in ("end", "wait", "arrived", "dropped") if kind in line)
    call = begun.get(line[kind])
    if call is not None and kind == "end":
        call |= {"end_ns": line.get("end_ns"), "nbytes": line.get("nbytes", call["nbytes"])}
        call["detail"].update({k: line[k] for k in ("raised", "unseen") if k in line})
    elif call is not None and kind == "dropped":
        call["detail"]["dropped"] = True
    elif call is not None:
        call[f"{kind}_ns"] = line[f"{kind}_ns"]
    return int(line[kind])


def to_event(rank: int, call: dict[str, Any]) -> Event:
    """A call as the log has it, as an event."""
    shape = None if call["shape"] is None else tuple(call["shape"])
    return Event(rank=rank, **{**call, "shape": shape})
