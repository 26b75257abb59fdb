"""`dtlearn bench cells`: what a reader waits for between a cell on persistent ranks and the next."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.errors import DtlearnError
from ...runtime.machine.cores import load_line
from ..durations import columns, seconds_text, spread

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
class CellsResult:
    """Times of persistent ranks, in seconds.

    Attributes:
        ranks: how many, on CPU over gloo.
        first_start: of the first world of the process, which loads torch in the agent.
        start: of a world once the agent is warm.
        cells: {kind of cell: time of each}, warm-up left out.
        machine: cores and load when it was measured.
    """

    ranks: int
    first_start: float
    start: float
    cells: dict[str, tuple[float, ...]]
    machine: str

    @property
    def ok(self) -> bool:
        """True: a bench that fails raises."""
        return True


def measure(ranks: int, cells: int) -> CellsResult:
    """Start ranks twice, then run `cells` cells of each kind on them."""
    from ...runtime.world.world import World

    machine = load_line()
    world, first_start = _start(World, ranks)
    world.stop()
    world, start = _start(World, ranks)
    try:
        _execute(world, _SETUP)
        totals = world.gather("total.item()")
        if set(totals) != {ranks * (ranks + 1) / 2}:
            raise DtlearnError(f"the all-reduce gave {totals}")
        times = {}
        for name, code in _CELLS.items():
            for _ in range(_WARM_UP):
                _execute(world, code)
            times[name] = tuple(_execute(world, code) for _ in range(cells))
    finally:
        world.stop()
    return CellsResult(ranks, first_start, start, times, machine)


def table(result: CellsResult) -> str:
    """The result for people."""
    rows = [["", "median", "min", "max", "target", ""]]
    rows.append(["start, first in a process", seconds_text(result.first_start), "", "", "", ""])
    rows.append(["start, agent warm", seconds_text(result.start), "", "", *_verdict(result.start, START_TARGET)])
    for name, times in result.cells.items():
        figures = spread(times)
        rows.append([name, *map(seconds_text, figures), *_verdict(figures[0], CELL_TARGET)])
    count = max(map(len, result.cells.values()))
    head = f"{result.ranks} persistent ranks (CPU, gloo), {count} cells of each kind after {_WARM_UP} to warm up"
    return "\n".join([head, "", columns(rows), "", f"{result.machine}; timings are noisy: quote the median."])


def values(result: CellsResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    cells = {name: dict(zip(("median", "min", "max"), spread(t), strict=True)) for name, t in result.cells.items()}
    targets = {"start": START_TARGET, "cell": CELL_TARGET}
    return {"bench": "cells", **dataclasses.asdict(result), "cells": cells, "targets": targets}


def _start(make: type[World], ranks: int) -> tuple[World, float]:
    begun = time.perf_counter()
    world = make(ranks, "cpu")
    return world, time.perf_counter() - begun


def _execute(world: World, code: str) -> float:
    from ...runtime.output import Sink

    begun = time.perf_counter()
    world.execute(code, timeout=_TIMEOUT, sink=Sink())
    return time.perf_counter() - begun


def _verdict(seconds: float, target: float) -> tuple[str, str]:
    return f"< {seconds_text(target)}", "met" if seconds < target else "missed"
