"""`dtlearn bench pipeline`: the course's runner beside torch's; and how near a step comes to its schedule's theory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.machine.cores import load_line
from ...runtime.words import format_seconds
from ..bench import Bench, BenchResult
from ..figures import aligned
from ..status_line import say
from .on_ranks.pipeline_emulated import (
    EMULATED,
    EMULATED_MICROBATCHES,
    EMULATED_RANKS,
    Emulated,
    beside_theory,
    emulated_on_rank,
    emulated_rows,
)
from .words import if_more_than_cores, load_since, met, noisy

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ...models.gpt import GPTConfig
    from ...models.in_turns import Times
    from ...pipeline_parallel.schedule import Schedule

# Our schedules, and the classes of torch.distributed.pipelining that have the same orders, action by action.
COUNTERPARTS = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "zbv": "ScheduleZBVZeroBubble",
}
TO_TORCH, TO_THEORY = 1.05, 0.98  # targets: a step to torch's; and theory's makespan to the measured one
_MICROBATCHES, _ROWS = 8, 2  # of the real model; rows of a micro-batch
_EMULATED_ROUNDS = 2
_WARM = 2  # steps that do not count: in the first one both runners tell shapes
_TIMEOUT = 900.0


@dataclass(frozen=True)
class PipelineResult(BenchResult):
    """Steps of a real model, in turns with torch's, and steps with emulated stage times.

    Attributes:
        where: what the ranks ran on, such as "gloo on CPU".
        parameters: of the model.
        times: {schedule or torch's class: seconds of each round, on its slowest rank}.
        apart: largest difference of a loss between the two runners.
        unit: emulated seconds of a rank's F, of its I and of its W.
        emulated: by schedule.
        machine: cores and load before and after.
    """

    ranks: int
    where: str
    parameters: int
    times: Times
    apart: float
    unit: float
    emulated: dict[str, Emulated]
    machine: str

    @property
    def ratios(self) -> dict[str, float]:
        """The ratio of our step to torch's, by schedule."""
        from ...models.in_turns import ratio

        return {own: ratio(self.times[own], self.times[other]) for own, other in COUNTERPARTS.items()}

    @property
    def ok(self) -> bool:
        """Sure is that both runners compute the same; times are noisy."""
        return self.apart < 1e-4


def measure(ranks: int, rounds: int, config: GPTConfig | None = None, unit: float = 0.16) -> PipelineResult:
    """Seconds of a step in both runners, then with emulated stage times; all on the CPU."""
    from ...models import GPTConfig
    from ...models.in_turns import slowest
    from ...runtime.run import run_ranks

    config = config or GPTConfig(num_layers=8, hidden_size=256)
    before = load_line()
    say(f"{rounds} rounds of a step in each runner")
    run = run_ranks(on_rank, ranks, config, rounds, device="cpu", timeout=_TIMEOUT)
    emulated_rounds = min(rounds, _EMULATED_ROUNDS)
    say(f"{emulated_rounds} rounds with emulated stage times")
    slept = run_ranks(emulated_on_rank, EMULATED_RANKS, EMULATED, unit, emulated_rounds, device="cpu", timeout=_TIMEOUT)
    emulated = {name: beside_theory(name, unit, seconds) for name, seconds in slowest(slept.values).items()}
    machine = load_since(before)
    times, apart = slowest([times for times, _ in run.values]), max(apart for _, apart in run.values)
    return PipelineResult(ranks, run.placement.where, config.num_parameters, times, apart, unit, emulated, machine)


def on_rank(config: GPTConfig, rounds: int) -> tuple[Times, float]:
    """On each rank: seconds of a step of each schedule in each runner, in turns; and how far their losses are apart."""
    import torch
    import torch.distributed as dist

    from ...models import GPT
    from ...models.in_turns import time_in_turns
    from ...pipeline_parallel.partition.costs import gpt_flops
    from ...pipeline_parallel.partition.optimum import by_cost
    from ...pipeline_parallel.schedules.make import make_schedule
    from ...pipeline_parallel.split_model import split_gpt

    tokens = torch.randint(config.vocab_size, (_MICROBATCHES * _ROWS, config.context_length + 1))  # (B, T + 1)
    dist.broadcast(tokens, 0)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()  # torch 2.11 compares strides
    ways: dict[str, Callable[[], Any]] = {}
    apart = 0.0
    for name, other in COUNTERPARTS.items():
        schedule = make_schedule(name, dist.get_world_size(), _MICROBATCHES)
        boundaries = by_cost(gpt_flops(config), schedule.num_stages)
        for way, make in ((name, our_step), (other, torch_step)):
            torch.manual_seed(0)
            ways[way] = make(schedule, split_gpt(GPT(config), boundaries), inputs, targets)
        losses = [ways[way]() for way in (name, other)]
        apart = max([apart, *(abs(a - b) for a, b in zip(*losses, strict=True))])
    return time_in_turns(ways, rounds, _WARM), apart


def our_step(
    schedule: Schedule, stages: list[nn.Module], inputs: torch.Tensor, targets: torch.Tensor
) -> Callable[[], list[float]]:
    """A step in the course's runner, which returns the losses on the rank that has them."""
    from ...models import next_token_loss
    from ...pipeline_parallel.runner.runner import PipelineRunner

    runner = PipelineRunner(schedule, stages, next_token_loss)

    def step() -> list[float]:
        losses = runner.step(inputs, targets).losses
        for parameter in runner.parameters():
            parameter.grad = None
        return [] if losses is None else losses.tolist()

    return step


def torch_step(
    schedule: Schedule, stages: list[nn.Module], inputs: torch.Tensor, targets: torch.Tensor
) -> Callable[[], list[float]]:
    """A step of the schedule in torch's runner, by its public class of the same orders."""
    import torch.distributed as dist
    from torch.distributed import pipelining

    from ...models import next_token_loss
    from ...pipeline_parallel.schedules.torch_stage import torch_stage

    rank = dist.get_rank()
    make = getattr(pipelining.schedules, COUNTERPARTS[schedule.name])
    numbers = schedule.stages_of(rank)
    mine = [torch_stage(stages[s], s, schedule.num_stages, "cpu") for s in numbers]
    single = issubclass(make, pipelining.schedules.PipelineScheduleSingle)
    runner = make(mine[0] if single else mine, schedule.num_microbatches, next_token_loss)
    is_last = schedule.placement[-1] == rank
    arguments = (inputs,) if schedule.placement[0] == rank else ()

    def step() -> list[float]:
        losses: list[torch.Tensor] = []
        runner.step(*arguments, target=targets if is_last else None, losses=losses, return_outputs=False)
        for stage in numbers:
            stages[stage].zero_grad()
        return [loss.item() for loss in losses]

    return step


def table(result: PipelineResult) -> str:
    """The result for people."""
    rounds = len(result.times["1f1b"])
    more = if_more_than_cores(result.ranks)
    return "\n".join(
        [
            f"{result.ranks} ranks ({result.where}), GPT of {result.parameters:,} parameters, {_MICROBATCHES} "
            f"micro-batches; forward and backward.{more}",
            f"{rounds} rounds in turn; medians of the slowest rank.",
            "",
            aligned(_time_rows(result)),
            "",
            f"{EMULATED_RANKS} ranks, {EMULATED_MICROBATCHES} micro-batches, emulated stage times: "
            f"F, I and W of a rank {format_seconds(result.unit)} each.",
            "Bubble: idle time / useful time; useful is what the stages are told to take.",
            "",
            aligned(emulated_rows(result.emulated)),
            "",
            *_verdicts(result),
            noisy(result.machine),
        ]
    )


def values(result: PipelineResult) -> dict[str, Any]:
    """The result as plain values, seconds throughout."""
    return {
        "ranks": result.ranks,
        "where": result.where,
        "parameters": result.parameters,
        "machine": result.machine,
        "targets": {"step": TO_TORCH, "efficiency": TO_THEORY},
        "apart": result.apart,
        "ratios": result.ratios,
        "measured": [
            {"way": way, "median": statistics.median(seconds), "rounds": list(seconds)}
            for way, seconds in result.times.items()
        ],
        "emulated": [
            {"schedule": name, "unit": result.unit, **found._asdict(), "efficiency": found.efficiency}
            | {"measured_bubble": found.measured_bubble}
            for name, found in result.emulated.items()
        ],
    }


def _time_rows(result: PipelineResult) -> list[list[str]]:
    rows = [["a step", "ours", "best", "torch's", "best", "ours / torch's"]]
    for name, other in COUNTERPARTS.items():
        seconds = [f(result.times[way]) for way in (name, other) for f in (statistics.median, min)]
        rows.append([name, *map(format_seconds, seconds), f"{result.ratios[name]:.2f}x"])
    return rows


def _verdicts(result: PipelineResult) -> list[str]:
    worst = max(result.ratios.values())
    efficiency = min(found.efficiency for found in result.emulated.values())
    return [
        f"Losses of both runners: {'equal' if result.ok else f'up to {result.apart:.2g} apart'}.",
        f"Steps to torch's: at most {worst:.2f}x, target {TO_TORCH:.2f}x: {met(worst <= TO_TORCH)}.",
        f"Theory to measured: at least {efficiency:.1%}, target {TO_THEORY:.0%}: {met(efficiency >= TO_THEORY)}.",
    ]


BENCH = Bench(
    "A step of a pipeline beside torch.distributed.pipelining's, and how near emulated stages come to theory.",
    "dtlearn bench pipeline",
    "rounds",
    7,
    measure,
    table,
    values,
    ranks=2,
)
