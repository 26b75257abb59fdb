"""Why a search finds nothing, with the numbers, and what would go instead: each remedy is tried before it is named."""

from __future__ import annotations

import math
from dataclasses import replace

from ..checking import nearest
from ..hardware import GIB, MOST_CHIPS
from ..memory import PlannedMemory, planned_memory
from ..run import Axes, TrainingRun, model_faults, run_faults
from .candidates import MICROBATCHES, Constraints, candidates, dividing, tried_axes

MOST_BATCH = 10**9  # sequences of a step


def nothing_divides(base: TrainingRun, asked: Constraints) -> str:
    """What is wrong with what was asked for; if it names no number, the batch is."""
    size, named = base.cluster.size, asked.named
    if not named:
        return (
            f"no layout of {size} ranks takes a batch of {base.batch}: dp x micro-batch must divide it, and each "
            "pipeline needs as many micro-batches as stages"
        )
    axes = {axis: n for axis, n in named.items() if axis in ("tp", "pp", "dp", "cp")}
    product = math.prod(axes.values())
    if size % product:
        words = " x ".join(f"{axis} {n}" for axis, n in axes.items())
        words += f" multiply to {product}, which" if len(axes) > 1 else ""
        alone = Axes(asked.tp or 1, asked.pp or 1, cp=asked.cp or 1)
        faults = [f"{words} does not divide {size} ranks", *model_faults(replace(base, axes=alone))]
    else:
        run = _closest(base, asked)
        faults = run_faults(run)
        if not (asked.tp and asked.pp):
            words = ", ".join(f"{name} {n}" for name, n in named.items())
            faults[0] = f"no layout of {size} ranks has {words}; the nearest, {run.axes}: {faults[0]}"
    text = "; ".join(faults)
    remedies = [remedy for name in named if (remedy := _other_values(base, asked, name))]
    return f"{text}. What would go, with the rest as asked: {', or '.join(remedies)}" if remedies else text


def _closest(base: TrainingRun, asked: Constraints) -> TrainingRun:
    """The first run with the fewest faults that keeps what was asked for, on all of the cluster where possible."""
    runs = [
        replace(base, axes=replace(axes, virtual_stages=asked.virtual_stages or 1), microbatch=microbatch)
        for axes in tried_axes(base, asked)
        for microbatch in ([asked.microbatch] if asked.microbatch else MICROBATCHES)
    ]
    return min(runs, key=lambda run: (run.axes.world != run.cluster.size, len(run_faults(run))))


def _other_values(base: TrainingRun, asked: Constraints, name: str) -> str:
    """The nearest other numbers of an axis with which there are layouts, in words."""
    runs = dividing(base, replace(asked, **{name: 0}))  # type: ignore[arg-type]
    of_axes = name != "microbatch"
    values = {getattr(run.axes if of_axes else run, name) for run in runs}
    return f"{name} {' or '.join(map(str, nearest(values, getattr(asked, name))))}" if values else ""


def fits_nowhere(run: TrainingRun, memory: PlannedMemory, base: TrainingRun, asked: Constraints) -> str:
    """By how much the smallest layout is too large, and what would help."""
    missing = (memory.total - memory.capacity) / GIB
    largest = max(memory.rows, key=lambda name: memory.rows[name])
    text = (
        f"{base.model.name} fits nowhere on {base.cluster.size} x {base.cluster.chip.name}: the smallest layout "
        f"({describe(run)}) needs {memory.total / GIB:.1f} GiB a rank, {missing:.1f} more than the "
        f"{memory.capacity / GIB:.1f} GiB there are; most are {largest} ({memory.rows[largest] / GIB:.1f} GiB)"
    )
    return f"{text}. What would help: {'; '.join(_remedies(base, asked, memory)) or 'a smaller model'}"


def _remedies(base: TrainingRun, asked: Constraints, memory: PlannedMemory) -> list[str]:
    def fits(run: TrainingRun, constraints: Constraints) -> bool:
        return any(planned_memory(candidate).fits for candidate in candidates(run, constraints))

    helps = []
    for factor in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        size, free = base.cluster.size * factor, replace(asked, dp=0)
        if size > MOST_CHIPS or base.batch * factor > MOST_BATCH:
            continue
        cluster = replace(base.cluster, size=size)
        if fits(replace(base, cluster=cluster, batch=base.batch * factor), free):
            helps.append(f"{cluster.size} ranks, with a batch of {base.batch * factor}")
            break
    if asked.recompute not in ("", "full") and fits(base, replace(asked, recompute="full")):
        helps.append("full recomputation")
    if asked.zero_stage is not None and fits(base, replace(asked, zero_stage=None)):
        helps.append("another ZeRO stage")
    if (asked.tp or asked.pp) and fits(base, replace(asked, tp=0, pp=0, dp=0)):
        helps.append("another tp x pp")
    if base.length > 2048 and fits(replace(base, length=2048), asked):
        helps.append("sequences of 2,048 tokens")
    return [*helps, f"chips with {memory.total / GIB:.0f} GiB"]


def describe(run: TrainingRun) -> str:
    """A layout in one line."""
    parts = [str(run.axes), f"micro-batch {run.microbatch}", f"ZeRO {run.zero_stage}", f"recompute {run.recompute}"]
    return ", ".join(parts)
