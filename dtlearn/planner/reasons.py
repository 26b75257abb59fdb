"""Why the runner-up loses, and what would change that, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .memory import planned_memory
from .run import TrainingRun, run_faults
from .search import LayoutPlan
from .step import planned_step

Change = Callable[[TrainingRun], TrainingRun]


def why_it_loses(best: LayoutPlan, other: LayoutPlan) -> str:
    """What the other layout pays more for, part by part."""
    slower = other.step.total / best.step.total - 1
    differences = {name: other.step.rows[name] - best.step.rows[name] for name in best.step.rows}
    worse = sorted((name for name in differences if differences[name] > 0), key=lambda name: -differences[name])[:2]
    better = min(differences, key=lambda name: differences[name])
    text = f"{other.run.axes} is {100 * slower:.1f} % slower"
    if worse:
        text += ": it pays " + " and ".join(
            f"{_seconds(differences[name])} more for {_part(name, other)}" for name in worse
        )
    if differences[better] < 0:
        text += f", and saves {_seconds(-differences[better])} on {_part(better, other)}"
    return text


def what_would_change_it(best: LayoutPlan, other: LayoutPlan) -> str:
    """The smallest of a few changes of cluster or batch after which the other layout is the faster one that fits."""
    flips = []
    for words, change in CHANGES.items():
        first, second = change(best.run), change(other.run)
        if run_faults(first) or run_faults(second):
            continue
        fits = planned_memory(first).fits, planned_memory(second).fits
        times = planned_step(first).total, planned_step(second).total
        if fits[1] and (not fits[0] or times[1] < times[0]):
            reason = "the first no longer fits" if not fits[0] else f"by {100 * (times[0] / times[1] - 1):.1f} %"
            flips.append(f"{words} ({reason})")
    if not flips:
        return f"none of {len(CHANGES)} changes tried would put it first: {', '.join(CHANGES)}"
    return "it would be first with " + ", or with ".join(flips[:3])


def _network(factor: float) -> Change:
    def change(run: TrainingRun) -> TrainingRun:
        chip = replace(run.cluster.chip, network=run.cluster.chip.network * factor)
        return replace(run, cluster=replace(run.cluster, chip=chip))

    return change


def _link(factor: float) -> Change:
    def change(run: TrainingRun) -> TrainingRun:
        chip = replace(run.cluster.chip, link=run.cluster.chip.link * factor)
        return replace(run, cluster=replace(run.cluster, chip=chip))

    return change


def _memory(factor: float) -> Change:
    def change(run: TrainingRun) -> TrainingRun:
        chip = replace(run.cluster.chip, memory=run.cluster.chip.memory * factor)
        return replace(run, cluster=replace(run.cluster, chip=chip))

    return change


def _batch(factor: int) -> Change:
    return lambda run: replace(run, batch=run.batch * factor)


def _smaller_batch(factor: int) -> Change:
    return lambda run: replace(run, batch=max(1, run.batch // factor))


def _longer(factor: int) -> Change:
    return lambda run: replace(run, length=run.length * factor)


CHANGES: dict[str, Change] = {
    "a network twice as fast": _network(2),
    "a network half as fast": _network(0.5),
    "a network four times as fast": _network(4),
    "a network a quarter as fast": _network(0.25),
    "links in the node a quarter as fast": _link(0.25),
    "a batch twice as large": _batch(2),
    "a batch four times as large": _batch(4),
    "a batch half as large": _smaller_batch(2),
    "sequences twice as long": _longer(2),
    "sequences four times as long": _longer(4),
    "three quarters of the memory": _memory(0.75),
    "half of the memory": _memory(0.5),
}


def _part(name: str, plan: LayoutPlan) -> str:
    run = plan.run
    details = {
        "bubble": f"the bubble ({run.axes.pp} stages, {run.num_microbatches} micro-batches)",
        "tensor parallel": f"communication of tensor parallelism (tp {run.axes.tp})",
        "data parallel": f"communication of data parallelism (dp {run.axes.dp}, ZeRO {run.zero_stage})",
        "stage to stage": f"transfers between stages (pp {run.axes.pp})",
        "context parallel": f"keys and values of other ranks (cp {run.axes.cp})",
        "recomputation": f"recomputation ({run.recompute})",
        "computation": f"products of these shapes (micro-batch {run.microbatch})",
        "optimizer": "the optimizer",
        "loader": "the loader",
    }
    return details[name]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"
