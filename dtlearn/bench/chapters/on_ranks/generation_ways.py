"""The ways in which a GPT generates, timed on the ranks: a part of `dtlearn bench production`."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....models.gpt import GPTConfig
    from ....models.in_turns import Times
    from ....production.serving.requests import GenerationRequest

WAYS = ("one rank, no cache", "one rank", "tensor parallel", "pipeline, one group", "pipeline, full")
ON_ALL = WAYS[2:]
_TIMEOUT = 900.0


def _config() -> GPTConfig:
    """Made on demand: the list of benches is read without torch."""
    from ....models.gpt import GPTConfig

    return GPTConfig(num_layers=4, num_heads=8, hidden_size=256, context_length=64)


@dataclass(frozen=True)
class GenerationWork:
    """What is generated.

    Attributes:
        config: of the model.
        texts: requests at once; half of them greedy, the others drawn.
        prompt, new_tokens: tokens of each.
    """

    config: GPTConfig = field(default_factory=_config)
    texts: int = 8
    prompt: int = 16
    new_tokens: int = 32

    @property
    def requests(self) -> tuple[GenerationRequest, ...]:
        """The requests, with prompts that differ."""
        from ....production.serving.requests import GenerationRequest

        prompts = [tuple((7 * n + k) % self.config.vocab_size for k in range(self.prompt)) for n in range(self.texts)]
        return tuple(
            GenerationRequest(prompt, self.new_tokens, temperature=float(n % 2), seed=n)
            for n, prompt in enumerate(prompts)
        )

    def __str__(self) -> str:
        config = self.config
        return (
            f"{config.num_layers} blocks of hidden size {config.hidden_size}, {self.texts} texts, {self.prompt} tokens "
            f"of prompt and {self.new_tokens} new ones each"
        )


@dataclass(frozen=True)
class GenerationSpeed:
    """What was measured.

    Attributes:
        where: what the ranks ran on.
        ranks: of the tensor-parallel and of the pipelined ways.
        work: what was generated.
        seconds: of each way and round, on its slowest rank.
        equal: whether all ways gave the same texts.
    """

    where: str
    ranks: int
    work: GenerationWork
    seconds: Times
    equal: bool

    def tokens_per_second(self, way: str) -> float:
        """New tokens of all texts, in the median round."""
        return self.work.texts * self.work.new_tokens / statistics.median(self.seconds[way])

    def times_one_rank(self, way: str) -> float:
        """How many times as fast as one rank with a cache: the median over the rounds."""
        from ....models.in_turns import ratio

        return 1 / ratio(self.seconds[way], self.seconds["one rank"])


def measure_generation(ranks: int, rounds: int, work: GenerationWork | None = None) -> GenerationSpeed:
    """Every way on `ranks` ranks of the CPU, in turn; the ways of one rank on rank 0, while the others wait.

    Args:
        ranks: which divide the heads, and are at most as many as the links of the model.
        rounds: how often each is timed.
        work: None: the default.
    """
    from ....models.in_turns import slowest
    from ....runtime.run import run_ranks

    work = work or GenerationWork()
    run = run_ranks(time_on_rank, ranks, work, rounds, device="cpu", timeout=_TIMEOUT)
    seconds = slowest([times for times, _ in run])
    texts = [found for _, own in run for found in own.values() if found is not None]
    return GenerationSpeed(run.placement.where, ranks, work, seconds, all(found == texts[0] for found in texts))


def time_on_rank(work: GenerationWork, rounds: int) -> tuple[Times, dict[str, list[list[int]] | None]]:
    """On each rank: seconds of every way and round, and its texts; None where this rank has none."""
    from ....models.in_turns import time_in_turns

    texts: dict[str, list[list[int]] | None] = {}

    def once(name: str, way: Callable[[], Any]) -> None:
        texts[name] = way()

    made = ways(work)
    return time_in_turns({name: partial(once, name, way) for name, way in made.items()}, rounds), texts


def ways(work: GenerationWork) -> dict[str, Callable[[], list[list[int]] | None]]:
    """On a rank: what generates the texts, by name."""
    import torch
    import torch.distributed as dist

    from ....models.gpt import GPT
    from ....pipeline_parallel.partition.naive import by_count
    from ....pipeline_parallel.split_model import split_gpt
    from ....production.serving.generate import generate
    from ....production.serving.pipelined import generate_pipelined
    from ....tensor_parallel.gpt import ParallelGPT

    rank, num_ranks, config, requests = dist.get_rank(), dist.get_world_size(), work.config, work.requests
    torch.manual_seed(0)
    whole = GPT(config).eval()
    divided = ParallelGPT.from_gpt(whole).eval()
    stage: Any = split_gpt(whole, by_count(config.num_layers + 2, num_ranks))[rank]

    def on_rank_0(cached: bool) -> list[list[int]] | None:
        return generate(whole, requests, cached=cached) if rank == 0 else None

    return {
        "one rank, no cache": partial(on_rank_0, False),
        "one rank": partial(on_rank_0, True),
        "tensor parallel": partial(generate, divided, requests),
        "pipeline, one group": partial(generate_pipelined, stage, config, requests, num_groups=1),
        "pipeline, full": partial(generate_pipelined, stage, config, requests, num_groups=num_ranks),
    }


def table_of(speed: GenerationSpeed) -> list[str]:
    """Lines for a person."""
    from ...figures import aligned

    rows = [("", "tokens/s", "to one rank")]
    rows += [(way, f"{speed.tokens_per_second(way):,.0f}", f"{speed.times_one_rank(way):.2f}x") for way in WAYS]
    equal = "the same in all ways" if speed.equal else "NOT the same in all ways"
    return [f"Generation, {speed.where}, {speed.ranks} ranks: {speed.work}", aligned(rows), f"Texts: {equal}."]
