"""The layouts that BLOOM's team timed before they chose one, and the planner's run of each.

Source: BigScience, `train/tr11-176B-ml/chronicles-prequel.md`, tables of 25 February 2022 ("GBS variations", "Tweaking
TP"): one model of 72 layers and a hidden size of 14,336, 48 nodes of 8 A100-80GB, fp16 with gradients in fp16, ZeRO 1,
full recomputation, no FlashAttention. Where they print a layout twice, the table has its faster run. Batches of 2,016
stand where 2,048 does not divide.

On 28 February the final model was timed, 70 layers and 112 heads, gradients in fp32: 104.5 s; and while it trained a
step took 105 s (`README.md` in the same folder).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dtlearn.memory.arithmetic.published import ModelSizes

from ..hardware import parse_cluster
from ..memory import planned_memory
from ..models import find_model
from ..run import Axes, Software, TrainingRun
from ..step import planned_step
from .calibration import EARLY

OMNI_PATH = 6.25e9  # bytes/s of each GPU: four cards of 100 Gb/s for the eight of a node
TIMED_MODEL = ModelSizes("BLOOM's trials, 181B", 72, 14336, 64, 250880, 2048)


class TimedLayout(NamedTuple):
    """A row of their tables.

    Attributes:
        tp, pp, dp, microbatch, batch: the layout.
        seconds: of a step; None: out of memory.
        gigabytes: of the fullest GPU, as `nvidia-smi` shows it; None: not printed.
    """

    tp: int
    pp: int
    dp: int
    microbatch: int
    batch: int
    seconds: float | None
    gigabytes: float | None

    @property
    def name(self) -> str:
        """The layout in words, such as "tp 4 x pp 12 x dp 8, micro-batch 2"."""
        return f"{Axes(self.tp, self.pp, self.dp)}, micro-batch {self.microbatch}"


TIMED = (
    TimedLayout(8, 8, 6, 4, 2016, 113.16, 52),
    TimedLayout(8, 6, 8, 4, 2048, 114.11, 55),
    TimedLayout(8, 12, 4, 4, 2048, 117.07, 49),
    TimedLayout(8, 12, 4, 2, 2048, 128.82, None),
    TimedLayout(8, 4, 12, 4, 2016, 114.81, 59),
    TimedLayout(8, 4, 12, 2, 2016, 125.52, 53),
    TimedLayout(8, 2, 24, 2, 2016, 136.13, 76),
    TimedLayout(8, 2, 24, 1, 2016, 145.45, 65),
    TimedLayout(8, 1, 48, 1, 2016, None, None),
    TimedLayout(4, 12, 8, 4, 2048, 111.89, 60),
    TimedLayout(4, 12, 8, 2, 2048, 110.48, 44),
    TimedLayout(4, 6, 16, 4, 2048, 117.11, 75),
    TimedLayout(4, 6, 16, 2, 2048, 111.71, 57),
    TimedLayout(4, 24, 4, 1, 2048, 130.60, None),
    TimedLayout(2, 12, 16, 2, 2048, 112.50, 63),
    TimedLayout(2, 24, 8, 2, 2048, 122.75, 53),
    TimedLayout(2, 24, 8, 1, 2048, 119.53, 44),
    TimedLayout(2, 6, 32, 2, 2048, None, None),
    TimedLayout(2, 6, 32, 1, 2048, None, None),
)
FINAL = TimedLayout(4, 12, 8, 2, 2048, 105.0, 60)  # of the model that was trained


class PlannedLayout(NamedTuple):
    """A row beside what the planner says of it; `gigabytes` with all that `planned_memory` assumes."""

    timed: TimedLayout
    run: TrainingRun
    seconds: float
    gigabytes: float
    fits: bool


def run_of_layout(timed: TimedLayout, software: Software = EARLY, final: bool = False) -> TrainingRun:
    """The planner's run of a row.

    Args:
        timed: a row.
        software: what their system hides and reaches.
        final: the model that was trained, with gradients in fp32, in place of the one of the trials.
    """
    return TrainingRun(
        find_model("bloom") if final else TIMED_MODEL,
        parse_cluster(f"{timed.tp * timed.pp * timed.dp}xA100-80GB", network=OMNI_PATH),
        Axes(timed.tp, timed.pp, timed.dp),
        timed.batch,
        timed.microbatch,
        recompute="full",
        precision="mixed 18" if final else "mixed 16",
        sequence_parallel=False,
        fused_attention=False,
        software=software,
    )


def calibrated(run: TrainingRun, seconds: float) -> Software:
    """The run's software, with the one efficiency that makes the planner's step as long as a measured one.

    Raises:
        ValueError: no efficiency between 0.05 and 1.2 does.
    """

    def planned(efficiency: float) -> float:
        return planned_step(replace(run, software=replace(run.software, efficiency=efficiency))).total

    low, high = 0.05, 1.2  # a step takes longer with the low one
    if not planned(high) <= seconds <= planned(low):
        raise ValueError(
            f"a step of {seconds:g} s is out of reach: with efficiencies of {high} to {low} the planner says "
            f"{planned(high):.3g} to {planned(low):.3g} s. Is the layout right?"
        )
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if planned(middle) > seconds else (low, middle)
    return replace(run.software, efficiency=round(high, 4))


def plan_of_layout(timed: TimedLayout, software: Software, final: bool = False) -> PlannedLayout:
    """What the planner says of a row; arguments as of `run_of_layout`."""
    run = run_of_layout(timed, software, final)
    memory = planned_memory(run)
    return PlannedLayout(timed, run, planned_step(run).total, memory.total / 1e9, memory.fits)
