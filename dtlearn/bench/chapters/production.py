"""`dtlearn bench production`: checkpoints beside torch's, from a kill to training again, and generation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...runtime.machine.cores import load_line
from ..bench import Bench, BenchResult
from ..figures import spread_values
from ..status_line import say
from .on_ranks import checkpoint_ways, generation_ways, restart_times
from .on_ranks.checkpoint_ways import CheckpointSpeed, measure_checkpoints
from .on_ranks.generation_ways import GenerationSpeed, GenerationWork, measure_generation
from .on_ranks.restart_times import RestartTimes, measure_restarts
from .words import if_more_than_cores, load_since, noisy


@dataclass(frozen=True)
class ProductionResult(BenchResult):
    """The three parts.

    Attributes:
        checkpoints, restarts, generation: what each measured.
        machine: cores and load before and after.
    """

    checkpoints: CheckpointSpeed
    restarts: RestartTimes
    generation: GenerationSpeed
    machine: str

    @property
    def ok(self) -> bool:
        """Sure is what is equal: loaded tensors, losses after a restart, texts. Times are noisy."""
        return self.checkpoints.equal and self.restarts.equal and self.generation.equal


def measure(
    ranks: int, rounds: int, num_tensors: int = 16, size: int = 512, work: GenerationWork | None = None
) -> ProductionResult:
    """All three parts, on the CPU; restarts, which take seconds each, at most three times."""
    before = load_line()
    say(f"{ranks} ranks: checkpoints, {rounds} rounds")
    checkpoints = measure_checkpoints(ranks, rounds, num_tensors, size)
    say(f"{ranks} ranks: a kill, and training again")
    restarts = measure_restarts(ranks, min(rounds, 3))
    say(f"{ranks} ranks: generation, {rounds} rounds")
    generation = measure_generation(ranks, rounds, work)
    return ProductionResult(checkpoints, restarts, generation, load_since(before))


def table(result: ProductionResult) -> str:
    """The result as text."""
    lines = [*checkpoint_ways.table_of(result.checkpoints), "", *restart_times.table_of(result.restarts), ""]
    lines += generation_ways.table_of(result.generation)
    return "\n".join([*lines, noisy(result.machine) + if_more_than_cores(result.checkpoints.ranks)])


def values(result: ProductionResult) -> dict[str, Any]:
    """The result as plain values."""
    checkpoints, generation = result.checkpoints, result.generation
    return {
        "machine": result.machine,
        "checkpoints": {
            "ranks": checkpoints.ranks,
            "bytes": checkpoints.nbytes,
            "equal": checkpoints.equal,
            "until_done": {way: spread_values(seconds) for way, seconds in checkpoints.seconds.items()},
            "save_stall": {way: spread_values(seconds) for way, seconds in checkpoints.stalls.items()},
            "to_torch": checkpoints.ratios(),
        },
        "restarts": {**asdict(result.restarts), "equal": result.restarts.equal},
        "generation": {
            "ranks": generation.ranks,
            "equal": generation.equal,
            "tokens_per_second": {way: generation.tokens_per_second(way) for way in generation.seconds},
        },
    }


BENCH = Bench(
    summary="checkpoints beside torch.distributed.checkpoint, restarts after a kill, generation on many ranks",
    example="dtlearn bench production --ranks 2",
    option="rounds",
    default=5,
    measure=measure,
    table=table,
    values=values,
    ranks=2,
)
