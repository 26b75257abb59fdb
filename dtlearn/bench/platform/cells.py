"""`dtlearn bench cells`: what a reader waits for between a cell on persistent ranks and the next."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.errors import DtlearnError
from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned, spread, spread_values
from ..status_line import say
from . import ipyparallel_cells

if TYPE_CHECKING:
    from ...runtime.world.world import World

CELL_TARGET, START_TARGET = 0.025, 1.0  # seconds
_WARM_UP = 5  # cells that are not counted
_TIMEOUT = 60.0  # seconds for one cell
# Zeros: their sum stays zero however often they are added up.
_SETUP = """
import torch
import torch.distributed as dist
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
megabyte = torch.zeros(1 << 18)
"""
_CELLS = {"empty cell": "pass", "1 MiB all-reduce cell": "dist.all_reduce(megabyte)"}


@dataclass(frozen=True)
class CellsResult(BenchResult):
    """Times of persistent ranks, in seconds."""

    ranks: int
    first_start: float  # of the first world of the process, which loads torch in the agent
    start: float  # of a world once the agent is warm
    cells: dict[str, tuple[float, ...]]  # {kind of cell: time of each}, warm-up left out
    # the same of ipyparallel's engines, measured in turn with ours; {} where there are none
    engines: dict[str, tuple[float, ...]]
    no_engines: str  # why there are none; "" if there are
    machine: str


def measure(ranks: int, cells: int) -> CellsResult:
    """Start ranks twice, then run `cells` cells of each kind on them, and on ipyparallel's engines if there are any."""
    machine = load_line()
    say("the first start")
    world, first_start = _start(ranks)
    world.stop()
    say("a second start")
    world, start = _start(ranks)
    engines, no_engines = None, ""
    try:
        say(f"{ipyparallel_cells.NAME}'s start")
        engines, no_engines = _start_engines(ranks)
        _execute(world, _SETUP)
        totals = world.gather("total.item()")
        if set(totals) != {ranks * (ranks + 1) / 2}:
            raise DtlearnError(f"the all-reduce gave {totals}")
        ours, theirs = {}, {}
        for name, code in _CELLS.items():
            say(f"{name}, {cells} times")
            pairs = [
                (_execute(world, code), engines.seconds(code) if engines else 0.0) for _ in range(_WARM_UP + cells)
            ]
            ours[name], theirs[name] = zip(*pairs[_WARM_UP:], strict=True)
    finally:
        world.stop()
        if engines is not None:
            engines.close()
    return CellsResult(ranks, first_start, start, ours, theirs if engines else {}, no_engines, machine)


def _start_engines(ranks: int) -> tuple[ipyparallel_cells.Engines | None, str]:
    """ipyparallel's engines, ready for cells; or why there are none."""
    if not ipyparallel_cells.installed():
        return None, f"To compare: {ipyparallel_cells.INSTALL}"
    try:
        return ipyparallel_cells.Engines(ranks, _SETUP), ""
    except ipyparallel_cells.EnginesError as error:
        return None, f"Not compared: {error}"


def table(result: CellsResult) -> str:
    """The result for people."""
    rows = [["", "median", "min", "max", "target", ""]]
    rows.append(["start, first in a process", format_seconds(result.first_start), "", "", "", ""])
    rows.append(["start, agent warm", format_seconds(result.start), "", "", *_verdict(result.start, START_TARGET)])
    for name, times in result.cells.items():
        figures = spread(times)
        rows.append([name, *map(format_seconds, figures), *_verdict(figures[0], CELL_TARGET)])
        if name in result.engines:
            rows.append([f"  of {ipyparallel_cells.NAME}", *map(format_seconds, spread(result.engines[name])), "", ""])
    count = max(map(len, result.cells.values()))
    head = f"{result.ranks} persistent ranks (CPU, gloo), {count} cells of each kind after {_WARM_UP} to warm up"
    lines = [head, "", aligned(rows), "", f"{result.machine}; timings are noisy: quote the median."]
    return "\n".join([*lines, result.no_engines] if result.no_engines else lines)


def values(result: CellsResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    cells, engines = ({name: spread_values(t) for name, t in times.items()} for times in (result.cells, result.engines))
    targets = {"start": START_TARGET, "cell": CELL_TARGET}
    return {**dataclasses.asdict(result), "cells": cells, "engines": engines, "targets": targets}


def _start(ranks: int) -> tuple[World, float]:
    from ...runtime.world.world import World

    begun = time.perf_counter()
    world = World(ranks, "cpu")
    return world, time.perf_counter() - begun


def _execute(world: World, code: str) -> float:
    from ...runtime.output import Sink

    begun = time.perf_counter()
    world.execute(code, timeout=_TIMEOUT, sink=Sink())
    return time.perf_counter() - begun


def _verdict(seconds: float, target: float) -> tuple[str, str]:
    return f"< {format_seconds(target)}", "met" if seconds < target else "missed"


_SUMMARY = "Times of cells on persistent ranks: their start, an empty cell, a 1 MiB all-reduce; beside ipyparallel's."
BENCH = Bench(_SUMMARY, "dtlearn bench cells --ranks 2", "cells", 50, measure, table, values)
