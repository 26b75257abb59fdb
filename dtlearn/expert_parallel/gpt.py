"""A GPT whose feed-forward networks are mixtures: the plain `GPT`, with other modules in its blocks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dtlearn.models.gpt import GPT

from .mixture import ExpertGPTConfig, MixtureOfExperts
from .parallel_mixture import DividedMixture, ExpertParallelMixture


def expert_gpt(config: ExpertGPTConfig, *, seed: int) -> GPT:
    """A `GPT` with a `MixtureOfExperts` in each block, all on this process: the reference for every ep.

    What is no mixture is as in `GPT(config)` after `torch.manual_seed(seed)`. Each mixture is drawn from a seed of its
    own, `block_seed`, so that a rank can draw the blocks that it has, alone.

    **Communication**: none. **Memory**: `config.num_parameters` parameters, about E/k times those that a token meets.

    Args:
        config: sizes.
        seed: of the weights; torch's default state is left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gpt = GPT(config)
    replace_feed_forwards(gpt, lambda block: MixtureOfExperts(config, seed=block_seed(seed, block)))
    return gpt


def expert_parallel_gpt(config: ExpertGPTConfig, *, seed: int, **options: Any) -> GPT:
    """`expert_gpt` with this rank's experts only, of the same values for every ep.

    **Communication**: none. **Memory**: E/ep of the experts, and one whole parameter of a mixture while it is cut.

    Args:
        config, seed: as for `expert_gpt`, the same on all ranks.
        options: of `ExpertParallelMixture`, by keyword: `group`, `replicas`, `global_counts`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gpt = GPT(config)
    put_mixtures(gpt, config, seed=seed, **options)
    return gpt


def put_mixtures(
    model: nn.Module,
    config: ExpertGPTConfig,
    *,
    seed: int,
    mixture_class: type[DividedMixture] = ExpertParallelMixture,
    **options: Any,
) -> None:
    """Put this rank's part of each block's mixture in the place of its feed-forward network.

    **Communication**: none. **Memory**: as `expert_parallel_gpt`.

    Args:
        model: a GPT, a tensor-parallel one, or a pipeline's stage, whose blocks are `blocks.0`, `blocks.1`, ... as in
            the whole model; on its device, no longer on "meta".
        config, seed: as for `expert_gpt`.
        mixture_class: what is put there.
        options: of that class, by keyword.
    """
    replace_feed_forwards(model, lambda block: mixture_class(config, seed=block_seed(seed, block), **options))


def replace_feed_forwards(model: nn.Module, make: Callable[[int], nn.Module]) -> None:
    """Replace the feed-forward network of each block; parameters keep its device and format.

    **Communication** and **Memory**: those of what is made.

    Args:
        model: as for `put_mixtures`.
        make: the new one, from the number of the block in the whole model.
    """
    for name, block in list(model.named_modules()):
        number = re.search(r"(?:^|\.)blocks\.(\d+)$", name)
        if number is not None:
            like = next(block.parameters())
            block.feed_forward = make(int(number[1])).to(like)


def block_seed(seed: int, block: int) -> int:
    """The seed of a block's mixture: other than the model's own, and other for each block.

    Args:
        seed: of the model.
        block: its number in the whole model.
    """
    return seed + 1_000_003 * (block + 1)  # a prime: seeds that are near each other do not meet


def mixtures(model: nn.Module) -> list[MixtureOfExperts]:
    """All mixtures of a model, in order: their `auxiliary_loss`, `load`, and `auxiliary_scale` to set.

    **Communication** and **Memory**: none.

    Args:
        model: or a stage of it.
    """
    return [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
