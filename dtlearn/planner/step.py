"""Seconds of a step, part by part, and what follows of them: utilisation, tokens per second, days.

With m micro-batches on a pipeline of p stages of v chunks a step is

    m * stage  +  bubble  +  exposed communication of dp  +  optimizer  +  loader

where a stage is its layers (computation, exposed tensor-parallel communication, transfers to the next stage) and its
share of the LM head: stages are assumed to be balanced, as BLOOM's and Llama 3's were. The bubble is (p-1)/(vm) of the
first term for flush schedules (2104.04473, section 2.2); any other schedule is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate
from dtlearn.pipeline_parallel.schedules.make import make_schedule

from .checking import check_positive
from .flops import run_flops, utilisation
from .layer_time import STREAM, LayerSeconds, ends_communication, head_seconds, layer_seconds
from .network import collective_seconds, cp_in_node, cp_size, dp_calls, dp_in_node, pp_seconds, pp_size
from .run import TrainingRun, check_world

LOADER = (
    0.005  # of the rest of a step: an assumption, a loader that keeps up; MegaScale, 2402.15627, 3.4, says what else
)
OPTIMIZER_TRAFFIC = 30  # bytes a parameter: master and two moments read and written, gradient read, weight written


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step.

    Attributes:
        run: that was planned.
        rows: by part, all exposed: they add up to the step.
        hidden: seconds of communication behind computation.
    """

    run: TrainingRun
    rows: dict[str, float]
    hidden: float

    @property
    def total(self) -> float:
        """Seconds of a step."""
        return sum(self.rows.values())

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, of 1."""
        run = self.run
        return utilisation(run_flops(run)[0], self.total, run.cluster.size, run.cluster.chip.peak)

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilisation, of 1: recomputation counts."""
        run = self.run
        return utilisation(run_flops(run)[1], self.total, run.cluster.size, run.cluster.chip.peak)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second on all ranks together."""
        return self.run.tokens / self.total


@dataclass(frozen=True)
class MeasuredTimes:
    """What one's own stopwatch says of computation, in the place of what the data sheet lets expect.

    Attributes:
        forward, backward: seconds of a block and a micro-batch on one rank, recomputation in backward.
        head: of embedding, LM head and loss of a micro-batch, forward and backward.
        optimizer: of a step.

    Raises:
        ValueError: a time that is no number of 0 or more.
    """

    forward: float
    backward: float
    head: float
    optimizer: float

    def __post_init__(self) -> None:
        check_positive("measured times", zero=True, **vars(self))


def planned_step(run: TrainingRun, measured: MeasuredTimes | None = None) -> StepTime:
    """The time of a step; a run that does not divide is computed with its averages (`check_run` refuses it).

    Args:
        run: of which step.
        measured: seconds of computation that are known; communication and bubble are still planned. There is then
            no row for a loader.

    Raises:
        ValueError: axes that do not multiply to the cluster.
    """
    check_world(run)
    layer, axes, m = layer_seconds(run), run.axes, run.num_microbatches
    head, optimizer = head_seconds(run), _optimizer(run)
    if measured is not None:
        layer = LayerSeconds(measured.forward, measured.backward, 0.0, layer.communication)
        head, optimizer = measured.head, measured.optimizer
    layers = run.layers_per_stage
    computation = m * (layers * (layer.forward + layer.backward) + head / axes.pp)
    recompute = m * layers * layer.recompute
    tp = m * (layers * layer.communication + ends_communication(run) / axes.pp)
    tp_exposed = tp * (1 - run.software.tp_hidden)
    cp, cp_exposed = _context_parallel(run)
    pp = _transfers(run)
    pp_exposed = pp * (1 - run.software.pp_hidden)
    stages = computation + recompute + tp_exposed + cp_exposed + pp_exposed
    bubble = stages * bubble_share(run.schedule, axes.pp, m, axes.virtual_stages)
    dp, dp_exposed = _data_parallel(run, computation + recompute)
    rows = {
        "computation": computation,
        "recomputation": recompute,
        "tensor parallel": tp_exposed,
        "context parallel": cp_exposed,
        "stage to stage": pp_exposed,
        "bubble": bubble,
        "data parallel": dp_exposed,
        "optimizer": optimizer,
    }
    rows["loader"] = LOADER * sum(rows.values()) if measured is None else 0.0
    return StepTime(run, rows, tp - tp_exposed + cp - cp_exposed + pp - pp_exposed + dp - dp_exposed)


@lru_cache(maxsize=4096)
def bubble_share(schedule: str, stages: int, microbatches: int, chunks: int = 1) -> float:
    """Idle time / useful time of a rank, x: Megatron's convention. GPipe's share of the total is x / (1 + x).

    Other schedules than 1F1B, GPipe and interleaved are simulated with F = I = W and 3p micro-batches at most: the
    idle time does not grow with more.
    """
    if stages <= 1:
        return 0.0
    if schedule in ("1f1b", "gpipe", "interleaved"):
        return (stages - 1) / (chunks * microbatches)
    few = min(microbatches, 3 * stages)
    split = 2 if schedule in ("zbv", "v_half", "v_min") else 1
    timeline = simulate(make_schedule(schedule, stages, few), StageTimes.equal_parts(split))
    return timeline.idle_to_useful * few / microbatches


def _transfers(run: TrainingRun) -> float:
    """Seconds to send activations on and gradients back, for each micro-batch and chunk, 1/tp of them by each rank."""
    if run.axes.pp == 1:
        return 0.0
    return 2 * run.num_microbatches * run.axes.virtual_stages * pp_seconds(run, pp_size(run))


def _context_parallel(run: TrainingRun) -> tuple[float, float]:
    """Seconds, all and exposed, for keys, values and their gradients over cp: half of it is behind attention."""
    axes = run.axes
    if axes.cp == 1:
        return 0.0, 0.0
    one = collective_seconds(run, "all-gather", cp_size(run), axes.cp, cp_in_node(run))
    seconds = 3 * one * run.layers_per_stage * run.num_microbatches
    return seconds, seconds / 2


def _data_parallel(run: TrainingRun, computation: float) -> tuple[float, float]:
    """Seconds, all and exposed. ZeRO 0 and 1: once a step, behind one backward pass; 2 and 3: in every micro-batch."""
    axes = run.axes
    ranks, near = axes.dp * axes.cp, max(dp_in_node(run), cp_in_node(run))
    seconds = sum(
        call.times * collective_seconds(run, call.collective, call.size, ranks, near) for call in dp_calls(run)
    )
    if not run.software.dp_hidden:
        return seconds, seconds
    # Room is one backward pass of a micro-batch. Several chunks would give more; published runs do not show it.
    behind = computation if run.zero_stage >= 2 else computation * 0.6 / run.num_microbatches
    last = seconds / max(1.0, run.layers_per_stage)  # the last bucket has nothing left to hide behind
    return seconds, max(seconds - behind, last)


def _optimizer(run: TrainingRun) -> float:
    ranks = run.axes.dp * run.axes.cp if run.zero_stage else 1
    return OPTIMIZER_TRAFFIC * run.rank_parameters / ranks / (run.cluster.chip.bandwidth * STREAM)
