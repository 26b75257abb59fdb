"""All layouts of a model on a cluster, the fastest that fit first, and why the others lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from dtlearn.memory.arithmetic.published import ModelSizes

from .hardware import GIB, Cluster
from .memory import PlannedMemory, planned_memory
from .run import Axes, RecomputeWay, Software, TrainingRun, run_faults
from .step import StepTime, planned_step

MICROBATCHES = (1, 2, 4, 8)
UNFUSED = ("V100", "P100", "TPUv3")  # chips of before FlashAttention, which it does not support
LONG = 16384  # tokens from which context parallelism is tried


@dataclass(frozen=True)
class Constraints:
    """What a search must keep; 0, "" and None leave it free.

    Attributes:
        tp, pp, dp, cp: ranks of an axis.
        microbatch: sequences.
        virtual_stages: chunks of a rank.
        zero_stage: 0 to 3; None: 1 to 3.
        recompute: one way; "": any.
        schedule: of the pipeline.
        precision: a convention of `dtlearn.memory.arithmetic.training_state`.
        beyond_node: whether tp may be larger than a node.
    """

    tp: int = 0
    pp: int = 0
    dp: int = 0
    cp: int = 0
    microbatch: int = 0
    virtual_stages: int = 0
    zero_stage: int | None = None
    recompute: RecomputeWay | str = ""
    schedule: str = "1f1b"
    precision: str = "mixed 18"
    beyond_node: bool = False


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
        raise ValueError(_fits_nowhere(run, memory, base, asked))
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
    base = TrainingRun(
        model, cluster, Axes(), batch, length=length or model.context, schedule=asked.schedule,
        precision=asked.precision, fused_attention=not cluster.chip.name.startswith(UNFUSED),
        software=software or Software(),
    )  # fmt: skip
    runs = list(_candidates(base, asked))
    if not runs:
        raise ValueError(_nothing_divides(base, asked))
    return runs, base, asked


def _candidates(base: TrainingRun, asked: Constraints) -> Iterator[TrainingRun]:
    for axes in _axes(base, asked):
        zero = [asked.zero_stage] if asked.zero_stage is not None else [1, 2, 3] if axes.pp == 1 else [1, 2]
        recompute = [asked.recompute] if asked.recompute else ["none", "selective", "full"]
        for microbatch in [asked.microbatch] if asked.microbatch else MICROBATCHES:
            for chunks in _chunks(base, axes, asked):
                run = replace(base, axes=replace(axes, virtual_stages=chunks), microbatch=microbatch)
                if run_faults(run):
                    continue
                for stage in zero:
                    for way in recompute:
                        yield replace(run, zero_stage=stage, recompute=way)  # type: ignore[arg-type]


def _axes(base: TrainingRun, asked: Constraints) -> Iterator[Axes]:
    world, model = base.cluster.size, base.model
    most_tp = world if asked.beyond_node else base.cluster.node
    for tp in [asked.tp] if asked.tp else [n for n in range(1, most_tp + 1) if model.heads % n == 0]:
        for cp in [asked.cp] if asked.cp else ([1, 2, 4, 8, 16] if base.length >= LONG else [1]):
            for pp in [asked.pp] if asked.pp else range(1, model.layers + 1):
                even = model.layers % pp == 0 or (model.layers + 2) % pp == 0
                if world % (tp * pp * cp) == 0 and (even or asked.pp):
                    dp = asked.dp or world // (tp * pp * cp)
                    yield Axes(tp, pp, dp, cp)


def _chunks(base: TrainingRun, axes: Axes, asked: Constraints) -> list[int]:
    if asked.virtual_stages:
        return [asked.virtual_stages]
    layers = base.model.layers
    stage = next((n // axes.pp for n in (layers, layers + 2) if n % axes.pp == 0), 1)
    if axes.pp == 1 or asked.schedule not in ("1f1b", "interleaved"):
        return [1]
    return [n for n in (1, 2, 3, 4, 6, 8) if stage % n == 0]


def _nothing_divides(base: TrainingRun, asked: Constraints) -> str:
    """The faults of what was asked for, where it names a layout; else what is wrong with the batch."""
    tp, pp, cp = asked.tp or 1, asked.pp or 1, asked.cp or 1
    dp = asked.dp or max(1, base.cluster.size // (tp * pp * cp))
    run = replace(
        base, axes=Axes(tp, pp, dp, cp, virtual_stages=asked.virtual_stages or 1), microbatch=asked.microbatch or 1
    )
    named = any((asked.tp, asked.pp, asked.dp, asked.cp, asked.microbatch, asked.virtual_stages)) or base.batch < 1
    faults = run_faults(run) if named else []
    return "; ".join(faults) or (
        f"no layout of {base.cluster.size} ranks takes a batch of {base.batch}: dp x micro-batch must divide it, and "
        "each pipeline needs as many micro-batches as stages"
    )


def _fits_nowhere(run: TrainingRun, memory: PlannedMemory, base: TrainingRun, asked: Constraints) -> str:
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
        return any(planned_memory(candidate).fits for candidate in _candidates(run, constraints))

    helps = []
    for factor in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        cluster = replace(base.cluster, size=base.cluster.size * factor)
        free = replace(asked, dp=0)
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
