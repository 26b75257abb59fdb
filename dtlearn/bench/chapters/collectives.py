"""`dtlearn bench collectives`: the collectives that are made of send and receive, beside gloo's own."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned, size_text
from ..status_line import say
from .words import noisy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...collectives.measure import TimesBySize

KIB, MIB = 1 << 10, 1 << 20
SIZES = tuple(KIB * 4**k for k in range(9))  # 1 KiB to 64 MiB
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
TARGET, TARGET_FROM = 1.5, 16 * MIB  # the ring's all-reduce against gloo's
_TIMEOUT = 1800.0


@dataclass(frozen=True)
class CollectivesResult(BenchResult):
    """Times of all algorithms, measured in turns.

    Attributes:
        sizes: bytes of the whole tensor.
        times: {(op, ranks): {algorithm: {bytes: seconds of each round, on its slowest rank}}}; "library" is gloo's.
    """

    sizes: tuple[int, ...]
    times: dict[tuple[str, int], TimesBySize]
    machine: str

    @property
    def rounds(self) -> int:
        return len(next(iter(next(iter(self.times.values()))["library"].values())))

    @property
    def ring_ratios(self) -> dict[tuple[int, int], float]:
        """{(ranks, bytes): the ring's all-reduce against gloo's}, for the sizes that the target is about."""
        from ...models.in_turns import ratio

        return {
            (ranks, n): ratio(times["ring"][n], times["library"][n])
            for (op, ranks), times in self.times.items()
            for n in self.sizes
            if op == "all_reduce" and n >= TARGET_FROM
        }


def measure(ranks: int, rounds: int, sizes: tuple[int, ...] = SIZES) -> CollectivesResult:
    """Measure on 2 ranks, and on `ranks`."""
    from ...collectives.measure import slowest
    from ...runtime.run import run_ranks

    machine = load_line()
    times: dict[tuple[str, int], TimesBySize] = {}
    for number in sorted({2, ranks}):
        say(f"{number} ranks, {rounds} rounds of each size")
        told = run_ranks(rank_work, number, sizes, rounds, device="cpu", timeout=_TIMEOUT).values
        times |= {(op, number): slowest([each[op] for each in told]) for op in OPS}
    return CollectivesResult(sizes, times, machine)


def rank_work(sizes: tuple[int, ...], rounds: int) -> dict[str, TimesBySize]:
    """On each rank: every collective, every algorithm, every size."""
    from ...collectives.measure import time_on_rank

    return {op: time_on_rank(op, sizes, rounds) for op in OPS}


def table(result: CollectivesResult) -> str:
    """The result for people: ratios at each size; times and bandwidths at the largest."""
    parts = [
        f"Collectives from send and receive beside gloo's own (CPU), {result.rounds} rounds in turn, medians.",
        "Times as long as gloo's of the same round; at the largest size also the time and nccl-tests' bandwidths.",
    ]
    for (op, ranks), times in result.times.items():
        parts += ["", aligned(_rows(op, ranks, times, result.sizes))]
    parts += [
        "",
        *_verdict(result),
        noisy(result.machine),
    ]
    return "\n".join(parts)


def values(result: CollectivesResult) -> dict[str, Any]:
    """The result as plain values: seconds, and bytes per second."""
    measured = [
        {
            "op": op,
            "ranks": ranks,
            "algorithm": "gloo" if name == "library" else name,
            "bytes": n,
            **_figures(op, ranks, times, name, n),
        }
        for (op, ranks), times in result.times.items()
        for name in times
        for n in result.sizes
    ]
    target = {"ratio": TARGET, "from_bytes": TARGET_FROM}
    return {"machine": result.machine, "target": target, "measured": measured}


def plot(result: CollectivesResult) -> tuple[Figure, str]:
    """All-reduce on the larger number of ranks: measured points, fitted lines. And the same in words."""
    from ...collectives.cost import plan_seconds
    from ...collectives.measure import fit_plan, plan_of
    from ...collectives.topology import flat
    from ...viz.collectives.cost_curves import Curve, cost_curves, fit_words

    ranks = max(number for _, number in result.times)
    times = result.times["all_reduce", ranks]
    curves = []
    for name, of_sizes in times.items():
        medians = {n: statistics.median(seconds) for n, seconds in of_sizes.items()}
        if name == "library":
            curves.append(Curve("gloo", medians))
            continue
        plan = plan_of("all_reduce", name, ranks)
        fitted = fit_plan(plan, medians)
        link = flat(fitted.latency, fitted.bandwidth)
        words = fit_words(fitted.latency, fitted.bandwidth, fitted.residual)
        curves.append(Curve(name, medians, partial(plan_seconds, plan, topology=link), words))
    label = f"measured on {result.machine}: ranks on CPU, gloo; medians of {result.rounds} rounds; lines: fitted"
    words = "; ".join(
        f"{curve.name} {format_seconds(curve.measured[n])} at {size_text(n)}"
        for curve in curves
        for n in (result.sizes[0], result.sizes[-1])
        if curve.measured
    )
    return cost_curves(curves, f"All-reduce on {ranks} ranks", label), f"Seconds over bytes, both logarithmic: {words}."


def _figures(op: str, ranks: int, times: TimesBySize, name: str, n: int) -> dict[str, float]:
    from ...collectives.cost import algorithm_bandwidth, bus_bandwidth
    from ...models.in_turns import ratio

    seconds = statistics.median(times[name][n])
    return {
        "median": seconds,
        "best": min(times[name][n]),
        "ratio": ratio(times[name][n], times["library"][n]),
        "algbw": algorithm_bandwidth(n, seconds),
        "busbw": bus_bandwidth(op, ranks, n, seconds),
    }


def _rows(op: str, ranks: int, times: TimesBySize, sizes: tuple[int, ...]) -> list[list[str]]:
    rows = [[f"{op}, {ranks} ranks", *map(size_text, sizes), "time", "algbw", "busbw"]]
    for name in times:
        largest = _figures(op, ranks, times, name, sizes[-1])
        if name == "library":
            cells = [format_seconds(statistics.median(times[name][n])) for n in sizes]
        else:
            cells = [f"{_figures(op, ranks, times, name, n)['ratio']:.2f}x" for n in sizes]
        speeds = [f"{largest[key] / 1e9:.2f} GB/s" for key in ("algbw", "busbw")]
        rows.append(["gloo" if name == "library" else name, *cells, format_seconds(largest["median"]), *speeds])
    return rows


def _verdict(result: CollectivesResult) -> list[str]:
    if not result.ring_ratios:
        return []
    worst = max(result.ring_ratios.values())
    met = "met" if worst <= TARGET else "missed"
    return [f"Ring all-reduce of {size_text(TARGET_FROM)} and more: at worst {worst:.2f}x, target {TARGET}x: {met}."]


BENCH = Bench(
    "Collectives from send and receive beside gloo's own, on 2 ranks and on more, 1 KiB to 64 MiB.",
    "dtlearn bench collectives --plot collectives.svg",
    "rounds",
    7,
    measure,
    table,
    values,
    plot=plot,
)
