"""Run a program of the lab on ranks, within a time limit, and keep what a person on duty could see."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import Any

from dtlearn.runtime.errors import RankError, RanksTimeout
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.run import run_ranks

from .lab_program import PROGRAMS

SECONDS = 20.0  # after which ranks that still run are stopped


@dataclass(frozen=True)
class LabRun:
    """What a run leaves behind.

    Attributes:
        values: what `main` returned, by rank; None: it did not end well.
        printed: text, by rank.
        diagnosis: what the watch or an exception said, with the line on which each rank stands; "": all ranks ended.
        record: the calls, up to there.
    """

    values: list[Any] | None
    printed: list[str]
    diagnosis: str
    record: Record = field(repr=False)

    def calls(self, rank: int | None = None) -> str:
        """All calls in their order, of one rank or of each: the line, and when they began and ended."""
        begin, _ = self.record.span_ns()
        lines = ["rank  line  call                                  bytes  from ms   to ms"]
        for event in sorted(self.record.select(rank=rank), key=lambda e: (e.rank, e.seq)):
            end = f"{_ms(event.end_ns, begin):>7}" if event.end_ns else "  never"
            waited = f"  wait() at {_ms(event.wait_ns, begin)}" if event.wait_ns else ""
            times = f"{_ms(event.start_ns, begin):>7} {end}{waited}"
            lines.append(f"{event.rank:>4}  {event.line:>4}  {_call(event):<36} {event.nbytes:>6}  {times}")
        return "\n".join(lines)

    def by_line(self) -> str:
        """A row for each line that communicates, on each rank: how often, how many bytes, how long."""
        rows: dict[tuple[int, int, str], list[Event]] = {}
        for event in sorted(self.record, key=lambda e: (e.rank, e.seq)):
            rows.setdefault((event.rank, event.line, event.op), []).append(event)
        lines = ["rank  line  operation              calls   bytes      ms"]
        for (rank, line, op), events in rows.items():
            nbytes = sum(event.nbytes for event in events)
            spent = sum(event.end_ns - event.start_ns for event in events if event.end_ns) / 1e6
            never = "  never ended" if any(event.end_ns is None for event in events) else ""
            lines.append(f"{rank:>4}  {line:>4}  {op:<22} {len(events):>5} {nbytes:>7} {spent:>7.0f}{never}")
        return "\n".join(lines)

    def __str__(self) -> str:
        parts = [f"rank {rank} returned {value}" for rank, value in enumerate(self.values or [])]
        parts += [f"rank {rank} printed {text.rstrip()}" for rank, text in enumerate(self.printed) if text.strip()]
        said = [self.diagnosis] if self.diagnosis else []
        return "\n".join([*said, *parts, "", self.by_line()])


def run_program(name: str, text: str | None = None, *, timeout: float = SECONDS) -> LabRun:
    """Run a program of the lab on its number of ranks, on the processor.

    Args:
        name: of one of `PROGRAMS`.
        text: your changed copy of it, to try a fix; None: the program as it is.
        timeout: seconds; most hangs are seen at once.

    Raises:
        ValueError: there is no program of that name.
    """
    if name not in PROGRAMS:
        raise ValueError(f"the lab has the programs {', '.join(PROGRAMS)}; got {name!r}")
    program = PROGRAMS[name]
    return run_text(text or program.text, program.world_size, program.file_name, timeout=timeout)


def run_text(text: str, world_size: int, file_name: str = "program.py", *, timeout: float = SECONDS) -> LabRun:
    """Run the `main` of a text on ranks.

    Args:
        text: a program like those of the lab.
        world_size: number of ranks.
        file_name: its name in stacks.
        timeout: see `run_program`.

    Raises:
        SyntaxError: the text is no Python.
    """
    compile(text, file_name, "exec")  # here, where it is one error and not one for each rank
    try:
        result = run_ranks(_main_of, world_size, text, file_name, device="cpu", record=True, timeout=timeout)
    except (RankError, RanksTimeout) as error:
        printed = [error.output.get(rank, "") for rank in range(world_size)]
        return LabRun(None, printed, str(error), error.record or Record(world_size))
    return LabRun(result.values, result.output, "", result.record)


def _main_of(text: str, file_name: str) -> Any:
    """Run on a rank: what the text's `main` returns."""
    linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, file_name, "exec"), names)
    return names["main"]()


def _call(event: Event) -> str:
    """An operation with what matters of its arguments."""
    parts = [event.op]
    if event.group != "world":
        parts.append(f"({event.group})")
    if event.peer is not None:
        parts.append(f"{'from' if event.receives else 'to' if event.sends else 'root'} {event.peer}")
    if "ranks" in event.detail:
        parts.append(str(event.detail["ranks"]))
    elif event.shape is not None:
        parts.append(f"{event.dtype} {tuple(event.shape)}")
    return " ".join(parts)


def _ms(time_ns: int | None, begin: int) -> str:
    return "" if time_ns is None else f"{(time_ns - begin) / 1e6:.0f}"
