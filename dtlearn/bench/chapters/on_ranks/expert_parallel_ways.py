"""A mixture of experts in the ways that `dtlearn bench expert_parallel` compares, and tokens with a known routing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ....expert_parallel import ExpertGPTConfig

REAL, NAIVE, ALL_HERE = "all-to-all", "all-gather", "all experts here"
WAYS = (REAL, NAIVE, ALL_HERE)
ROUTINGS = ("balanced", "skewed")

MixtureStep = Callable[[], "tuple[torch.Tensor, torch.Tensor]"]


class MixtureWork(NamedTuple):
    """A mixture and the tokens of each rank.

    Attributes:
        config: of the mixture.
        tokens: n, on each rank.
    """

    config: ExpertGPTConfig
    tokens: int


class OnceFound(NamedTuple):
    """What a rank found in one step of each way.

    Attributes:
        apart: largest difference of an output or a gradient of the input between two ways.
        load: rows that it has for each expert.
    """

    apart: float
    load: list[int]


def own_tokens(work: MixtureWork, routing: str) -> torch.Tensor:
    """Tokens of this rank, (n, C), for a router that reads the first E elements.

    Balanced: each expert has as many choices as the others. Skewed: every other token chooses among the experts of the
    first rank, so that it gets ep/2 + 1/2 times the mean.
    """
    import torch
    import torch.distributed as dist

    E, k = work.config.num_experts, work.config.top_k
    generator = torch.Generator().manual_seed(dist.get_rank())
    tokens = 0.01 * torch.randn(work.tokens, work.config.hidden_size, generator=generator)
    for i in range(work.tokens):
        among = E // dist.get_world_size() if routing == "skewed" and i % 2 == 0 else E
        for j in range(k):  # a rank's experts may be fewer than k: then the other choices are the next ones
            tokens[i, ((i // 2 * k + j) % among + (j // among) * among) % E] += 5.0 - j
    return tokens


def mixture_steps(work: MixtureWork, routing: str) -> dict[str, MixtureStep]:
    """On a rank: forward and backward of one mixture in all ways; each returns its output and input's gradient."""
    import torch

    from ....expert_parallel import ExpertParallelMixture, GatheredMixture, MixtureOfExperts

    mixtures: dict[str, MixtureOfExperts] = {
        REAL: ExpertParallelMixture(work.config, seed=0, global_counts=False),
        NAIVE: GatheredMixture(work.config, seed=0, global_counts=False),
        ALL_HERE: MixtureOfExperts(work.config, seed=0),
    }
    tokens = own_tokens(work, routing)
    for mixture in mixtures.values():
        with torch.no_grad():
            mixture.router.weight.zero_().fill_diagonal_(1.0)
    return {way: partial(_step, mixture, tokens) for way, mixture in mixtures.items()}


def once_on_rank(work: MixtureWork, routing: str) -> OnceFound:
    """On each rank of a recorded run: every way once, each in a phase of its name."""
    import torch.distributed as dist

    from ....expert_parallel.routing import route
    from ....runtime.recording.phases import phase

    results = {}
    for way, step in mixture_steps(work, routing).items():
        dist.barrier()
        with phase(way):
            results[way] = step()
    apart = max(
        (a - b).abs().max().item()
        for way in (REAL, NAIVE)
        for a, b in zip(results[way], results[ALL_HERE], strict=True)
    )
    logits = own_tokens(work, routing)[:, : work.config.num_experts]
    return OnceFound(apart, route(logits, work.config.top_k, renormalise=True).load().tolist())


def _step(mixture: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = tokens.clone().requires_grad_()
    mixture.zero_grad()
    y: torch.Tensor = mixture(inputs)
    y.square().sum().backward()
    assert inputs.grad is not None
    return y.detach(), inputs.grad
