"""`dtlearn bench hybrid_parallel`: a step in every layout of some ranks, beside torch's and beside the plan."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.hybrid_parallel_ways import COUNTERPARTS, LAYOUTS, MICROBATCHES, once_on_rank, runs_of, time_on_rank
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    from ...hybrid_parallel.against_plan import SmallRun
    from ...models.in_turns import Times

LINK = "1 Gb/s"
TO_TORCH = 1.15  # target: a step without a link, to torch's counterpart
APART = 1e-4  # largest difference of a loss after one step
_TIMEOUT = 900.0


class LayoutBytes(NamedTuple):
    """Bytes of the rank that has most.

    Attributes:
        memory: planned: parameters, gradients, optimizer's state, and activations at their most.
        planned, recorded: sent in a step, along all axes.
    """

    memory: float
    planned: float
    recorded: float


@dataclass(frozen=True)
class HybridParallelResult(BenchResult):
    """Bytes, which are the same every time, and steps, measured in turns.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        parameters: of the model.
        layouts: of each of ours, in words such as "tp2 dp2".
        nbytes: of each of ours.
        unequal: ours that send other bytes along some axis of some rank than was planned.
        apart: largest difference of a loss to that of the first layout.
        bare, linked: {way: seconds of each round, on its slowest rank}, without a link and on LINK.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    parameters: int
    layouts: dict[str, str]
    nbytes: dict[str, LayoutBytes]
    unequal: tuple[str, ...]
    apart: float
    bare: Times
    linked: Times
    machine: str

    def ratios(self, times: Times) -> dict[str, float]:
        """The ratio of a step to that of its counterpart, for each layout that has one."""
        from ...models.in_turns import ratio

        return {own: ratio(times[own], times[other]) for own, other in COUNTERPARTS.items()}

    @property
    def ok(self) -> bool:
        """Sure are the bytes, and that all layouts, torch's too, compute the same; times are noisy."""
        return not self.unequal and self.apart <= APART


def measure(ranks: int, rounds: int, base: SmallRun | None = None) -> HybridParallelResult:
    """Bytes and losses of a recorded step, then the seconds without and with a link; all on the CPU."""
    from ...hybrid_parallel.against_plan import SmallRun, planned_rank
    from ...hybrid_parallel.layout import MeshLayout
    from ...hybrid_parallel.traffic import recorded_bytes
    from ...models import GPTConfig
    from ...models.in_turns import slowest
    from ...runtime.link.link import Link
    from ...runtime.record.training_steps import part
    from ...runtime.run import run_ranks

    wide = max(4, ranks)
    config = GPTConfig(num_layers=wide, num_heads=wide, hidden_size=128)
    base = base or SmallRun(config, MeshLayout(), global_batch=MICROBATCHES * ranks)
    runs = runs_of(base, ranks)
    options: dict[str, Any] = {"device": "cpu", "timeout": _TIMEOUT}
    before = load_line()
    say("bytes and loss of a step in each layout")
    run = run_ranks(once_on_rank, ranks, runs, record=True, **options)
    nbytes, unequal = dict[str, LayoutBytes](), []
    for name, own in runs.items():
        events = part(run.record, name).events
        planned = [planned_rank(own, rank) for rank in range(ranks)]
        recorded = [recorded_bytes(events, own.layout, rank) for rank in range(ranks)]
        pairs = zip(planned, recorded, strict=True)
        if not all(math.isclose(plan.sent[axis], sent[axis], abs_tol=1e-6) for plan, sent in pairs for axis in sent):
            unequal.append(name)
        memory = max(sum(plan.memory.values()) for plan in planned)
        most = (max(sum(plan.sent.values()) for plan in planned), max(sum(sent.values()) for sent in recorded))
        nbytes[name] = LayoutBytes(memory, *most)
    apart = max(abs(loss - losses[LAYOUTS[0]]) for losses in run.values for loss in losses.values())
    say(f"{rounds} rounds without a link")
    bare = slowest(run_ranks(time_on_rank, ranks, runs, rounds, **options).values)
    say(f"{rounds} rounds on the link")
    linked = slowest(run_ranks(time_on_rank, ranks, runs, rounds, link=Link.named(LINK), **options).values)
    layouts = {name: str(own.layout) for name, own in runs.items()}
    where, parameters, machine = run.placement.where, base.config.num_parameters, load_since(before)
    return HybridParallelResult(ranks, where, parameters, layouts, nbytes, tuple(unequal), apart, bare, linked, machine)


def table(result: HybridParallelResult) -> str:
    """The result for people."""
    rounds = len(result.bare[LAYOUTS[0]])
    return "\n".join(
        [
            f"{result.ranks} ranks ({result.where}), GPT of {result.parameters:,} parameters; forward, backward, "
            f"AdamW; {MICROBATCHES} micro-batches in pipelines.{if_more_than_cores(result.ranks)}",
            "",
            aligned(_byte_rows(result)),
            "Of the rank that has most. Memory: state and activations, planned. Sent: in a step, by rings.",
            "",
            f"{rounds} rounds in turn; medians of the slowest rank. Ours find the norm of the gradient, too.",
            "",
            aligned(_time_rows("no link", result, result.bare)),
            "",
            aligned(_time_rows(f"emulated link {LINK}", result, result.linked)),
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: HybridParallelResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "ranks": result.ranks,
        "where": result.where,
        "parameters": result.parameters,
        "machine": result.machine,
        "targets": {"step": TO_TORCH, "loss": APART},
        "layouts": result.layouts,
        "bytes": {name: nbytes._asdict() for name, nbytes in result.nbytes.items()},
        "unequal": list(result.unequal),
        "apart": result.apart,
        "ratios": {"no link": result.ratios(result.bare), LINK: result.ratios(result.linked)},
        "measured": [
            {"link": link, "way": way, "median": statistics.median(seconds), "rounds": list(seconds)}
            for link, times in ((None, result.bare), (LINK, result.linked))
            for way, seconds in times.items()
        ],
    }


def _byte_rows(result: HybridParallelResult) -> list[list[str]]:
    rows = [["bytes of a rank", "layout", "memory", "sent, planned", "sent"]]
    for name, nbytes in result.nbytes.items():
        rows.append([name, result.layouts[name], *(f"{value:,.0f}" for value in nbytes)])
    return rows


def _time_rows(heading: str, result: HybridParallelResult, times: Times) -> list[list[str]]:
    from ...models.in_turns import ratio

    rows = [[heading, "step", "best", "to dp", "to torch's"]]
    for way, seconds in times.items():
        other = COUNTERPARTS.get(way)
        to_torch = f"{ratio(seconds, times[other]):.2f}x" if other else ""
        step = format_seconds(statistics.median(seconds)), format_seconds(min(seconds))
        rows.append([way, *step, f"{ratio(seconds, times['dp']):.2f}x", to_torch])
    return rows


def _verdicts(result: HybridParallelResult) -> list[str]:
    ratios = result.ratios(result.bare)
    equal = f"not as planned: {', '.join(result.unequal)}" if result.unequal else "as planned, on every rank and axis"
    steps = ", ".join(f"{way} {found:.2f}x" for way, found in ratios.items())
    losses = "equal" if result.apart <= APART else f"up to {result.apart:.2g} apart"
    return [
        f"Losses of all layouts, torch's too: {losses}.",
        f"Bytes sent: {equal}.",
        f"Steps to those of torch's counterparts, no link: {steps}; target at most {TO_TORCH:.2f}x: "
        f"{met(max(ratios.values()) <= TO_TORCH)}.",
    ]


BENCH = Bench(
    "A training step in every layout of the ranks (tp, pp, dp, two axes, ZeRO), beside torch's and beside the plan.",
    "dtlearn bench hybrid_parallel",
    "rounds",
    5,
    measure,
    table,
    values,
)
