"""A GPT whose feed-forward networks are mixtures: the plain `GPT`, with other modules in its blocks."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from dtlearn.models.gpt import GPT

from .mixture import ExpertGPTConfig, MixtureOfExperts
from .parallel_mixture import ExpertParallelMixture


def expert_gpt(
    config: ExpertGPTConfig, *, seed: int, mixture_class: type[MixtureOfExperts] = MixtureOfExperts, **options: Any
) -> GPT:
    """A `GPT` with a mixture in each block: the whole one, or this rank's part, of the same values for every ep.

    What is no mixture is as in `GPT(config)` after `torch.manual_seed(seed)`.

    **Communication**: none. **Memory**: `config.num_parameters` parameters, or E/ep of the experts.

    Args:
        config: sizes.
        seed: of the weights, the same on all ranks; torch's default state is left alone.
        mixture_class, options: as for `put_mixtures`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gpt = GPT(config)
    put_mixtures(gpt, config, seed=seed, mixture_class=mixture_class, **options)
    return gpt


def put_mixtures(
    model: nn.Module,
    config: ExpertGPTConfig,
    *,
    seed: int,
    mixture_class: type[MixtureOfExperts] = ExpertParallelMixture,
    **options: Any,
) -> None:
    """Put a mixture in the place of each block's feed-forward network; parameters keep the block's device and format.

    Each is drawn from a seed of its own, so that a rank can draw the blocks that it has, alone.

    **Communication**: none. **Memory**: that of the mixtures, and one whole parameter while it is cut.

    Args:
        model: a GPT, a tensor-parallel one, or a pipeline's stage, whose blocks are `blocks.0`, `blocks.1`, ... as in
            the whole model; on its device, no longer on "meta".
        config, seed: as for `expert_gpt`.
        mixture_class: what is put there.
        options: of that class, by keyword: `group`, `replicas`, `global_counts`.
    """
    for name, block in list(model.named_modules()):
        number = re.search(r"(?:^|\.)blocks\.(\d+)$", name)
        if number is not None:
            like = next(block.parameters())
            block.feed_forward = mixture_class(config, seed=block_seed(seed, int(number[1])), **options).to(like)


def block_seed(seed: int, block: int) -> int:
    """The seed of a block's mixture: other than the model's own, and other for each block."""
    return seed + 1_000_003 * (block + 1)  # a prime: seeds that are near each other do not meet


def mixtures(model: nn.Module) -> list[MixtureOfExperts]:
    """All mixtures of a model or a stage, in order: with `auxiliary_loss`, `load`, and `auxiliary_scale` to set."""
    return [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
