"""What a search must keep, and all runs that keep it and divide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from dtlearn.memory.arithmetic.training_state import find_convention
from dtlearn.pipeline_parallel.schedules.make import SCHEDULES

from ..checking import check_whole, check_word, divisors
from ..run import Axes, RecomputeWay, TrainingRun, run_faults

MICROBATCHES = (1, 2, 4, 8)
LONG = 16384  # tokens from which context parallelism is tried
KEPT = ("tp", "pp", "dp", "cp", "microbatch", "virtual_stages")  # the numbers; 0 is any


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

    Raises:
        ValueError: a number that is no whole one of 0 or more, or a word that nothing here knows.
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

    def __post_init__(self) -> None:
        check_whole("constraints", 0, **{name: getattr(self, name) for name in KEPT})
        if self.zero_stage is not None:
            check_word("zero_stage", self.zero_stage, (0, 1, 2, 3))
        check_word("recompute", self.recompute, ("", *get_args(RecomputeWay)))
        check_word("schedule", self.schedule, SCHEDULES)
        find_convention(self.precision)

    @property
    def named(self) -> dict[str, int]:
        """The numbers that are asked for."""
        return {name: getattr(self, name) for name in KEPT if getattr(self, name)}


def candidates(base: TrainingRun, asked: Constraints) -> Iterator[TrainingRun]:
    """All runs that divide, with each ZeRO stage and way to recompute that may be; in a pipeline not ZeRO 3 unasked."""
    recompute = [asked.recompute] if asked.recompute else ["none", "selective", "full"]
    for run in dividing(base, asked):
        for stage in [asked.zero_stage] if asked.zero_stage is not None else [1, 2, 3] if run.axes.pp == 1 else [1, 2]:
            for way in recompute:
                yield replace(run, zero_stage=stage, recompute=way)  # type: ignore[arg-type]


def dividing(base: TrainingRun, asked: Constraints) -> Iterator[TrainingRun]:
    """The runs that divide, with the base's ZeRO stage and recomputation."""
    size = base.cluster.size
    for axes in tried_axes(base, asked):
        if size % (axes.tp * axes.pp * axes.cp):
            continue
        for microbatch in [asked.microbatch] if asked.microbatch else MICROBATCHES:
            for chunks in _chunks(base, axes, asked):
                run = replace(base, axes=replace(axes, virtual_stages=chunks), microbatch=microbatch)
                if not run_faults(run):
                    yield run


def tried_axes(base: TrainingRun, asked: Constraints) -> Iterator[Axes]:
    """The axes that a search looks at, whether they multiply to the cluster or not; heads and layers divide."""
    world, model = base.cluster.size, base.model
    most_tp = world if asked.beyond_node else base.cluster.node
    stages = sorted({*divisors(model.layers), *divisors(model.layers + 2)})
    for tp in [asked.tp] if asked.tp else divisors(model.heads, most_tp):
        for cp in [asked.cp] if asked.cp else ([1, 2, 4, 8, 16] if base.length >= LONG else [1]):
            for pp in [asked.pp] if asked.pp else [n for n in stages if n <= model.layers]:
                yield Axes(tp, pp, asked.dp or max(1, world // (tp * pp * cp)), cp)


def _chunks(base: TrainingRun, axes: Axes, asked: Constraints) -> list[int]:
    if asked.virtual_stages:
        return [asked.virtual_stages]
    layers = base.model.layers
    stage = next((n // axes.pp for n in (layers, layers + 2) if n % axes.pp == 0), 1)
    if axes.pp == 1 or asked.schedule not in ("1f1b", "interleaved"):
        return [1]
    return [n for n in (1, 2, 3, 4, 6, 8) if stage % n == 0]
