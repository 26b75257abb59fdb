"""All that one rank logged, read back: its calls and its phases; and the record that the logs of all ranks make."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..words import incomplete
from .event import Event, Mark, Span
from .rank_file import Tampered, read_rank_file
from .record import Record, merge


@dataclass(frozen=True)
class RankLog:
    """What one rank logged; `fault` says why it is incomplete, "" if it is not."""

    rank: int
    events: list[Event]
    spans: list[Span]
    fault: str = ""


def read_rank_log(path: Path, rank: int, fault: str = "", marks: Sequence[Mark] = ()) -> RankLog:
    """Calls and phases of one rank; `path` is that of its call log."""
    return RankLog(rank, read_call_log(path, rank, marks), read_spans(path, rank), fault)


def merge_logs(world_size: int, logs: list[RankLog], label: str) -> Record:
    """One record from the logs of ranks."""
    spans = [span for log in logs for span in log.spans]
    record = merge(world_size, [log.events for log in logs], label, spans)
    return replace(record, incomplete=incomplete({log.rank: log.fault for log in logs}))


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


def read_call_log(path: Path, rank: int, marks: Sequence[Mark] = ()) -> list[Event]:
    """The calls of one rank. Each line is later than the one before, and between its marks, whatever the rank's clock
    said: the order of the lines is that of the calls."""
    begun: dict[int, dict[str, Any]] = {}
    now, left = -1, list(marks)
    for number, line in enumerate(_lines(path, rank)):
        while left and left[0].logged <= number:
            now = left.pop(0).answered_ns
        latest = left[0].came_ns if left else float("inf")
        for key in _TIMES & line.keys():
            now = line[key] = line[key] if now < (line[key] or 0) < latest else now + 1
        take_line(begun, line)
    first = min(begun, default=0)  # a cell's calls count from 0, whatever its rank did before
    return [to_event(rank, {**call, "seq": call["seq"] - first}) for call in begun.values()]


def _lines(path: Path, rank: int) -> Iterator[dict[str, Any]]:
    """The lines of a file, but a last one that a kill cut short; none if the rank ended before it wrote any."""
    with contextlib.suppress(FileNotFoundError):
        *lines, last = read_rank_file(path).split(b"\n")
        yield from (read_line(text, rank) for text in lines)
        with contextlib.suppress(Tampered):  # as a rule it is empty
            yield read_line(last, rank)


_OF_KIND: dict[type, str] = {
    int: "seq group_seq nbytes start_ns line end wait arrived dropped span peer end_ns wait_ns arrived_ns",
    str: "op group file code phase raised dtype",
    list: "shape",
    dict: "detail",
    bool: "asynchronous unseen",
}
_KINDS = {name: kind for kind, names in _OF_KIND.items() for name in names.split()}
_TIMES = {"start_ns", "wait_ns", "arrived_ns", "end_ns"}
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
