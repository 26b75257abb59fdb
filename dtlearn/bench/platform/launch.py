"""`dtlearn bench launch`: from call to result of an all-reduce, with `run_ranks` and with the usual launchers."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...runtime.errors import DtlearnError
from ...runtime.machine.cores import load_line
from ...runtime.words import first_line, format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned, spread, spread_values
from ..status_line import say
from .other_launchers import NOTEBOOK, SPAWN, Rivals

OURS = "run_ranks"


@dataclass(frozen=True)
class Launches:
    """Times of one launcher."""

    launcher: str
    first: float | None  # seconds of the first call of its process; None if that failed
    warm: tuple[float, ...]  # seconds of each later call
    error: str = ""  # why it failed; "" if it did not


@dataclass(frozen=True)
class LaunchResult(BenchResult):
    """All launchers, `run_ranks` first, measured in turns in one run; each call starts `ranks` ranks on the CPU."""

    ranks: int
    launches: tuple[Launches, ...]
    machine: str

    @property
    def ok(self) -> bool:
        """Whether every launcher worked."""
        return not any(each.error for each in self.launches)


def measure(ranks: int, rounds: int) -> LaunchResult:
    """Measure: a first call of each launcher, then `rounds` rounds in which each is called once."""
    machine = load_line()
    with contextlib.closing(Rivals()) as rivals:
        calls: dict[str, Callable[[], float]] = {
            OURS: lambda: _run_ranks_seconds(ranks),
            SPAWN: lambda: rivals.seconds(SPAWN, ranks),
            NOTEBOOK: lambda: rivals.seconds(NOTEBOOK, ranks),
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        errors: dict[str, str] = {}
        for number in range(rounds + 1):
            for name, call in calls.items():
                if name not in errors:
                    say(f"round {number} of {rounds}: {name}" if number else f"first call: {name}")
                    try:
                        times[name].append(call())
                    except DtlearnError as error:
                        errors[name] = first_line(error)
    launches = [Launches(n, t[0] if t else None, tuple(t[1:]), errors.get(n, "")) for n, t in times.items()]
    return LaunchResult(ranks, tuple(launches), machine)


def all_reduce() -> float:
    """On each rank of `run_ranks`: the same all-reduce as in `other_launchers`."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor)
    return float(tensor.item())


def table(result: LaunchResult) -> str:
    """The result for people."""
    rows = [["launcher", "first call", "median", "min", "max", f"of {OURS}"]]
    ratios = _ratios(result)
    for each in result.launches:
        first = format_seconds(each.first) if each.first is not None else "-"
        figures = [format_seconds(value) for value in spread(each.warm)] if each.warm else ["-"] * 3
        ratio = f"{ratios[each.launcher]:.1f}x" if each.launcher in ratios else "-"
        rows.append([each.launcher, first, *figures, ratio])
    lines = [
        f"From call to result of an all-reduce on {result.ranks} ranks (CPU, gloo), "
        f"{max(len(each.warm) for each in result.launches)} rounds in turn",
        "",
        aligned(rows),
        "",
        *(f"{each.launcher} failed: {each.error}" for each in result.launches if each.error),
        f"{result.machine}; timings are noisy: quote the ratio.",
        f"The first call of {OURS} includes loading torch once, in the helper process that later calls fork from.",
    ]
    return "\n".join(lines)


def values(result: LaunchResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    ratios = _ratios(result)
    launches = []
    for each in result.launches:
        figures = spread_values(each.warm) if each.warm else {}
        launches.append({**dataclasses.asdict(each), **figures, "ratio": ratios.get(each.launcher)})
    return {"ranks": result.ranks, "machine": result.machine, "launches": launches}


def _ratios(result: LaunchResult) -> dict[str, float]:
    """{launcher: how many times as long as `run_ranks` it takes, in the rounds that both did}."""
    from ...models.in_turns import ratio  # loads torch, which the head has not while it measures

    ours = result.launches[0].warm
    done = ((each, min(len(each.warm), len(ours))) for each in result.launches)
    return {each.launcher: ratio(each.warm[:n], ours[:n]) for each, n in done if n}


def _run_ranks_seconds(ranks: int) -> float:
    from ...runtime.run import run_ranks

    begun = time.perf_counter()
    result = run_ranks(all_reduce, ranks, device="cpu")
    seconds = time.perf_counter() - begun
    if result[0] != ranks * (ranks + 1) / 2:
        raise DtlearnError(f"the all-reduce gave {result[0]}")
    return seconds


_SUMMARY = "Time from call to result of an all-reduce: run_ranks, torch's spawn, accelerate's notebook_launcher."
BENCH = Bench(_SUMMARY, "dtlearn bench launch --ranks 2 --rounds 3", "rounds", 5, measure, table, values)
