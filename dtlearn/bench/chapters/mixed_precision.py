"""`dtlearn bench mixed_precision`: our autocast and scaler beside torch's, and gradients averaged in 32 and 16 bits."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .words import if_more_than_cores, load_since, noisy

if TYPE_CHECKING:
    from ...mixed_precision.timing import MixedPrecisionWorkload
    from ...models.in_turns import Times

LINK = "1 Gb/s"
NUMEL = 1 << 22  # gradients: 16 MiB in float32
TO_TORCH = 1.10  # target: a step with our autocast and scaler against one with torch's
_TIMEOUT = 900.0


@dataclass(frozen=True)
class MixedPrecisionResult(BenchResult):
    """Steps and averages, each measured in turns.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        parameters: of the model of the steps.
        steps: {kind: seconds of each round, on its slowest rank}.
        numel: gradients that are averaged.
        reductions: {format: seconds of each round}, on the CPU, on LINK.
        expected: {format: seconds by the link's formula}.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    parameters: int
    steps: Times
    numel: int
    reductions: Times
    expected: dict[str, float]
    machine: str

    @property
    def ratios(self) -> dict[str, float]:
        """Ours to torch's of each part, and each format to fp32."""
        from ...mixed_precision.timing import PARTS
        from ...models.in_turns import ratio

        steps = {
            f"our/torch's {part}": ratio(self.steps[f"our {part}"], self.steps[f"torch's {part}"]) for part in PARTS
        }
        fp32 = self.reductions["fp32"]
        return steps | {f"fp32/{name}": ratio(fp32, times) for name, times in self.reductions.items() if name != "fp32"}


def nbytes(numel: int, name: str) -> int:
    """Bytes that are averaged in one of `REDUCTIONS`."""
    from ...mixed_precision.timing import REDUCTIONS

    return numel * REDUCTIONS[name].itemsize


def measure(
    ranks: int, rounds: int, work: MixedPrecisionWorkload | None = None, numel: int = NUMEL
) -> MixedPrecisionResult:
    """The steps, on GPUs if each rank has one; then the averages, on the CPU with a link."""
    from ...mixed_precision.timing import (
        REDUCTIONS,
        MixedPrecisionWorkload,
        time_reductions_on_rank,
        time_steps_on_rank,
    )
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.run import run_ranks

    before, link, work = load_line(), Link.named(LINK), work or MixedPrecisionWorkload()
    say(f"{rounds} rounds of steps")
    run = run_ranks(time_steps_on_rank, ranks, work, rounds, timeout=_TIMEOUT)
    say(f"{rounds} rounds of averages on the link")
    averaged = run_ranks(time_reductions_on_rank, ranks, numel, rounds, device="cpu", link=link, timeout=_TIMEOUT)
    expected = {name: link.seconds("all_reduce", nbytes(numel, name), ranks) for name in REDUCTIONS}
    machine = load_since(before)
    where, parameters = run.placement.where, work.config.num_parameters
    return MixedPrecisionResult(
        ranks, where, parameters, slowest(run.values), numel, slowest(averaged.values), expected, machine
    )


def table(result: MixedPrecisionResult) -> str:
    """The result for people."""
    rounds = len(result.steps["fp32"])
    more = if_more_than_cores(result.ranks)
    return "\n".join(
        [
            f"{result.ranks} ranks ({result.where}), GPT of {result.parameters:,} parameters; forward, backward, SGD, "
            f"each rank for itself.{more}",
            f"{rounds} rounds in turn; medians of the slowest rank.",
            "",
            aligned(_step_rows(result)),
            "",
            aligned(_reduction_rows(result)),
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: MixedPrecisionResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    both = [("step", result.steps), ("average", result.reductions)]
    return {
        "ranks": result.ranks,
        "where": result.where,
        "parameters": result.parameters,
        "numel": result.numel,
        "link": LINK,
        "machine": result.machine,
        "targets": {"our/torch's both": TO_TORCH},
        "ratios": result.ratios,
        "bytes": {name: nbytes(result.numel, name) for name in result.reductions},
        "expected": result.expected,
        "measured": [
            {"what": what, "kind": kind, "median": statistics.median(seconds), "rounds": list(seconds)}
            for what, times in both
            for kind, seconds in times.items()
        ],
    }


def _step_rows(result: MixedPrecisionResult) -> list[list[str]]:
    from ...models.in_turns import ratio

    rows = [["a training step", "median", "best", "to fp32", "ours to torch's"]]
    for kind, seconds in result.steps.items():
        to_torch = result.ratios.get(kind.replace("our ", "our/torch's "))
        compared = f"{to_torch:.2f}x" if to_torch is not None else ""
        to_fp32 = f"{ratio(seconds, result.steps['fp32']):.2f}x"
        rows.append([kind, format_seconds(statistics.median(seconds)), format_seconds(min(seconds)), to_fp32, compared])
    return rows


def _reduction_rows(result: MixedPrecisionResult) -> list[list[str]]:
    rows = [[f"an average on the emulated link {LINK}", "bytes", "median", "by the formula", "fp32 to this"]]
    for name, seconds in result.reductions.items():
        gain = result.ratios.get(f"fp32/{name}", 1.0)
        times = [format_seconds(statistics.median(seconds)), format_seconds(result.expected[name])]
        rows.append([name, f"{nbytes(result.numel, name):,}", *times, f"{gain:.2f}x"])
    return rows


def _verdicts(result: MixedPrecisionResult) -> list[str]:
    found = result.ratios["our/torch's both"]
    met = "met" if found <= TO_TORCH else "missed"
    lines = [f"Our autocast and scaler to torch's: {found:.2f}x, target at most {TO_TORCH:.2f}x: {met}."]
    if "CPU" in result.where:
        lines.append("On a CPU 16 bits show numerics, not speed: a step may well take longer than in fp32.")
    return lines


BENCH = Bench(
    "Our autocast and loss scaler beside torch's; gradients averaged in 32 and in 16 bits on an emulated link.",
    "dtlearn bench mixed_precision",
    "rounds",
    9,
    measure,
    table,
    values,
    ranks=2,
)
