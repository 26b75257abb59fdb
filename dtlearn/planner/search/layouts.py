"""All layouts of a model on a cluster, the fastest that fit first."""

from __future__ import annotations

from typing import NamedTuple

from dtlearn.memory.arithmetic.published import ModelSizes

from ..checking import check_whole
from ..hardware import Cluster
from ..memory import PlannedMemory, planned_memory
from ..run import Axes, Software, TrainingRun
from ..step import StepTime, planned_step
from .candidates import Constraints, candidates
from .refusals import MOST_BATCH, fits_nowhere, nothing_divides

UNFUSED = ("V100", "P100", "TPUv3")  # chips of before FlashAttention, which it does not support


class LayoutPlan(NamedTuple):
    """A layout with what it takes."""

    run: TrainingRun
    step: StepTime
    memory: PlannedMemory


def search_layouts(
    model: ModelSizes,
    cluster: Cluster,
    batch: int,
    length: int = 0,
    constraints: Constraints | None = None,
    software: Software | None = None,
) -> list[LayoutPlan]:
    """The layouts that fit, the fastest first; of each product of axes the best micro-batch and recomputation only.

    Args:
        model: sizes.
        cluster: chips and links.
        batch: sequences of a step.
        length: tokens of a sequence; 0: the model's context.
        constraints: what must be kept.
        software: what is hidden; None: `Software()`.

    Raises:
        ValueError: nothing divides, or nothing fits; the message says by how much, and what would help.
    """
    runs, base, asked = _asked_runs(model, cluster, batch, length, constraints, software)
    sized = [(run, planned_memory(run)) for run in runs]
    fitting = [(run, memory) for run, memory in sized if memory.fits]
    if not fitting:
        run, memory = min(sized, key=lambda pair: pair[1].total)
        raise ValueError(fits_nowhere(run, memory, base, asked))
    best: dict[tuple[int, ...], LayoutPlan] = {}
    for run, memory in fitting:
        plan = LayoutPlan(run, planned_step(run), memory)
        axes = (run.axes.tp, run.axes.pp, run.axes.dp, run.axes.cp)
        if axes not in best or plan.step.total < best[axes].step.total:
            best[axes] = plan
    return sorted(best.values(), key=lambda plan: plan.step.total)


def planned_layouts(
    model: ModelSizes,
    cluster: Cluster,
    batch: int,
    length: int = 0,
    constraints: Constraints | None = None,
    software: Software | None = None,
) -> list[LayoutPlan]:
    """All layouts that divide, whether they fit or not, with every micro-batch, ZeRO stage and way to recompute.

    Args:
        model, cluster, batch, length, constraints, software: as for `search_layouts`.

    Raises:
        ValueError: nothing divides.
    """
    runs, _, _ = _asked_runs(model, cluster, batch, length, constraints, software)
    return [LayoutPlan(run, planned_step(run), planned_memory(run)) for run in runs]


def _asked_runs(
    model: ModelSizes,
    cluster: Cluster,
    batch: int,
    length: int,
    constraints: Constraints | None,
    software: Software | None,
) -> tuple[list[TrainingRun], TrainingRun, Constraints]:
    """The runs of a search, what they have in common, and what was asked."""
    asked = constraints or Constraints()
    check_whole("a plan", most=MOST_BATCH, batch=batch)
    check_whole("a plan", 0, length=length)
    base = TrainingRun(
        model, cluster, Axes(), batch, length=length or model.context, schedule=asked.schedule,
        precision=asked.precision, fused_attention=not cluster.chip.name.startswith(UNFUSED),
        software=software or Software(),
    )  # fmt: skip
    runs = list(candidates(base, asked))
    if not runs:
        raise ValueError(nothing_divides(base, asked))
    return runs, base, asked
