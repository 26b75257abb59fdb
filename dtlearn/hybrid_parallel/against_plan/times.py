"""The planner's step beside real steps on an emulated link: computation measured, communication and bubble planned.

    found = compare_times(SmallRun(GPTConfig(hidden_size=256), MeshLayout(tp=2)), Link.named("1 Gb/s"))
    print(times_table([found]))        # predicted, measured, ratio

A processor has no data sheet that says what a small product takes. So every rank first times its part of a block, of
the ends and of the optimizer, all ranks at once, as they will compute; its tensor-parallel group is torch's fake one,
whose collectives do nothing. The planner gets these seconds in the place of its own, and adds what its network model,
its bubble and its rules of what is hidden say. Nothing is fitted to the steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.models.in_turns import Times, slowest, time_in_turns
from dtlearn.pipeline_parallel.checking.simulate import StageTimes
from dtlearn.pipeline_parallel.runner.virtual_time import played_seconds
from dtlearn.planner import Cluster, MeasuredTimes, StepTime, planned_step
from dtlearn.planner.network import pp_size
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.words import columns, format_seconds
from dtlearn.tensor_parallel import (
    ParallelGPT,
    reduce_sequence_parallel_gradients,
    vocabulary_parallel_cross_entropy,
)

from .small_run import CPU, SmallRun

_WARM = 2  # steps that do not count: the first makes the optimizer's state, and tells shapes


@dataclass(frozen=True)
class TimeComparison:
    """A step as planned and as measured.

    Attributes:
        run, link: of what.
        planned: seconds by part.
        measured: seconds of each round, on its slowest rank.
    """

    run: SmallRun
    link: Link
    planned: StepTime
    measured: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Predicted to measured: to the median of the rounds."""
        return self.planned.total / statistics.median(self.measured)


def cluster_of(link: Link, ranks: int) -> Cluster:
    """So many ranks on an emulated link, for the planner.

    **Communication** and **Memory**: none.

    Args:
        link: with one level or two.
        ranks: how many.
    """
    inner = link.inside or link
    chip = replace(CPU, link=inner.bandwidth, network=link.bandwidth)
    return Cluster(chip, ranks, link.ranks_per_node or ranks, inner.latency, link.latency)


def compare_times(run: SmallRun, link: Link, rounds: int = 5) -> TimeComparison:
    """Time the parts, plan the step with them, and time steps on the link; all on the CPU.

    **Communication** and **Memory**: those of `HybridGPT`.

    Args:
        run: of which step. With more ranks than cores the ranks take turns, in the parts as in the step; a pipeline
            then has less of a bubble than on cores of its own.
        link: that the ranks are on.
        rounds: how often the parts and the step are timed.
    """
    ranks = run.layout.world_size
    parts = run_ranks(measured_parts, ranks, run, rounds, device="cpu", timeout=600.0)
    steps = slowest(run_ranks(_steps, ranks, run, rounds, device="cpu", link=link, timeout=600.0).values)
    return TimeComparison(run, link, plan_with(run, link, parts.values), steps["step"])


def plan_with(run: SmallRun, link: Link, parts: Sequence[MeasuredTimes]) -> StepTime:
    """The planner's step of a run on a link, with the seconds that its ranks have measured, of each the mean.

    **Communication** and **Memory**: none.
    """
    mean = MeasuredTimes(*(statistics.mean(getattr(own, name) for own in parts) for name in _PARTS))
    plan = run.training_run(cluster_of(link, run.layout.world_size))
    # ZeRO 2 and 3 reduce and gather while they compute; 0 and 1 when the last backward pass is done.
    planned = planned_step(replace(plan, software=replace(plan.software, dp_hidden=run.zero >= 2)), mean)
    return planned if run.layout.pp == 1 else _with_played_pipeline(planned, run, link, mean)


def _with_played_pipeline(planned: StepTime, run: SmallRun, link: Link, mean: MeasuredTimes) -> StepTime:
    """The same with the schedule played message by message: by the planner's rule no transfer is hidden.

    On a slow link transfers are much of a step, and what a schedule hides of them counts: those of 1F1B go both ways
    at once. Nothing of the planner's rule is used but the bytes of a message.
    """
    chunks = run.made_schedule.num_stages // run.layout.pp
    runs = run.num_microbatches * chunks  # passes of a rank
    layers = run.config.num_layers / run.made_schedule.num_stages
    head = mean.head / run.made_schedule.num_stages  # on all stages, as the planner has it; a third of it is forward
    half = planned.rows["tensor parallel"] / runs / 2  # of the collectives: forward and backward have as many
    forward, backward = layers * mean.forward + head / 3 + half, layers * mean.backward + head * 2 / 3 + half
    times = StageTimes(forward, backward, 0.0)
    near = link.between(*run.layout.groups("pp")[0][:2])
    at_once = played_seconds(run.made_schedule, times, 0.0)
    played = played_seconds(run.made_schedule, times, pp_size(planned.run) / near.bandwidth, near.latency)
    bubble = at_once - runs * (forward + backward)
    return replace(planned, rows=planned.rows | {"bubble": bubble, "stage to stage": played - at_once})


_PARTS = ("forward", "backward", "head", "optimizer")


def measured_parts(run: SmallRun, rounds: int) -> MeasuredTimes:
    """On each rank: seconds of its part of a block, of the ends, and of its optimizer, when all ranks compute at once.

    **Communication**: a barrier before each time; the collectives of the layers do nothing.
    **Memory**: this rank's part of all blocks, with gradients and state.

    Args:
        run: whose parts.
        rounds: medians of how many.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: F401  (its import registers "fake")

    layout, config = run.layout, run.config
    nobody: dist.ProcessGroup | None = None
    for ranks in layout.groups("tp"):  # every rank makes every group
        group = dist.new_group(list(ranks), backend="fake")
        nobody = group if dist.get_rank() in ranks else nobody
    model = ParallelGPT(config, seed=0, sequence_parallel=run.divides_tokens, group=nobody)
    blocks = list(model.blocks)[: max(1, config.num_layers // layout.pp)]
    trained = [model] if layout.pp == 1 else blocks
    optimizer = torch.optim.AdamW([parameter for module in trained for parameter in module.parameters()])
    tokens, targets = (rows[: run.microbatch] for rows in run.batch())
    length = config.context_length // (layout.tp if run.divides_tokens else 1)
    x = torch.randn(run.microbatch, length, config.hidden_size, requires_grad=True)  # (b, T/t, C)

    def ends() -> None:
        logits = model.head(model.embedding(tokens))  # (b, T, V/t)
        vocabulary_parallel_cross_entropy(logits, targets, num_classes=config.vocab_size, group=nobody).backward()

    def update() -> None:
        if run.divides_tokens:  # as before every step of an optimizer
            reduce_sequence_parallel_gradients(model, group=nobody)
        optimizer.step()
        optimizer.zero_grad()

    found = [list[float]() for _ in _PARTS]
    for number in range(_WARM + rounds):
        y = through(blocks, x)
        backward_pass = partial(y.backward, torch.ones_like(y))
        parts = partial(through, blocks, x), backward_pass, ends, update
        seconds = [_seconds(part) for part in parts]
        for of_part, taken in zip(found, seconds, strict=True):
            of_part += [taken] if number >= _WARM else []
    forward, backward, head, step = map(statistics.median, found)
    share = layout.num_replicas if run.zero else 1
    return MeasuredTimes(forward / len(blocks), backward / len(blocks), head, step / share)


def through(blocks: Sequence[nn.Module], x: torch.Tensor) -> torch.Tensor:
    """The outputs of one block after the other, (b, T/t, C)."""
    for block in blocks:
        x = block(x)
    return x


def _seconds(do: Callable[[], object]) -> float:
    dist.barrier()
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def _steps(run: SmallRun, rounds: int) -> Times:
    """On each rank: seconds of a whole step."""
    model, batch = run.make(), run.batch()
    return time_in_turns({"step": lambda: model.step(*batch)}, rounds, _WARM)


def times_table(comparisons: Sequence[TimeComparison]) -> str:
    """A line for each run: predicted, with its largest parts, measured, and the ratio.

    **Communication** and **Memory**: none.
    """
    rows = [["run", "predicted", "measured", "ratio", "of the prediction"]]
    for found in comparisons:
        parts = sorted(found.planned.rows.items(), key=lambda row: -row[1])
        largest = ", ".join(f"{name} {value / found.planned.total:.0%}" for name, value in parts[:3] if value)
        median = statistics.median(found.measured)
        times = format_seconds(found.planned.total), format_seconds(median), f"{found.ratio:.2f}"
        rows.append([str(found.run), *times, largest])
    return "\n".join(columns(rows, (1, 2, 3), indent=""))
