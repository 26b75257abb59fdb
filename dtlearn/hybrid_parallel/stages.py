"""This rank's stages of a GPT whose layers are divided over its groups: built without the others'.

A rank draws whole parameters one after the other, and keeps its part of those that its stages have. So the model is
that of `GPT(config)` after `torch.manual_seed(seed)` under every layout, and no rank ever has all of it. Mixtures are
those of `expert_gpt(config, seed=seed)`. cp divides tokens, and no parameter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import torch

from dtlearn.context_parallel import ContextMethod, TokenLayout
from dtlearn.expert_parallel import ExpertGPTConfig
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel.split_model import GPTStage, split_gpt
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.tensor_parallel.initial_weights import gpt_parameters
from dtlearn.tensor_parallel.layers.parameters import take
from dtlearn.tensor_parallel.random_states import SPLIT_OFFSET, RandomStateTracker

from .groups import AxisGroups
from .layout import MeshLayout
from .more_axes.context import put_context_parallelism
from .more_axes.experts import leave_out_feed_forward, put_divided_mixtures

TOKEN, HEAD = "embedding.token.weight", "head.projection.weight"  # one weight, if they are tied


def build_stages(
    config: GPTConfig,
    boundaries: Sequence[int],
    numbers: Collection[int],
    *,
    seed: int,
    groups: AxisGroups,
    num_microbatches: int = 1,
    sequence_parallel: bool = False,
    context_method: ContextMethod = "ring",
    token_layout: TokenLayout = "zigzag",
    random_states: RandomStateTracker | None = None,
    device: torch.device | str = "cpu",
) -> dict[int, GPTStage]:
    """Stages of `ParallelGPT`, by number; their parameters have the names that they have in `GPT`.

    **Communication**: none: all ranks draw the same numbers.
    **Memory**: this rank's part of its stages; one whole parameter, while it is cut.

    Args:
        config: of the whole model.
        boundaries: as `split_gpt` takes them.
        numbers: of the stages that this rank has.
        seed: of the weights, the same on all ranks.
        groups: of this rank.
        num_microbatches: m of a step; mixtures need it.
        sequence_parallel, random_states: as for `ParallelGPT`.
        context_method, token_layout: as for `ContextParallelAttention`.
        device: of the parameters.
    """
    sp = sequence_parallel and groups.layout.tp > 1
    whole = ParallelGPT(config, device="meta", sequence_parallel=sp, random_states=random_states, group=groups.tp)
    if groups.layout.cp > 1:
        put_context_parallelism(whole, method=context_method, token_layout=token_layout, cp=groups.cp)
    if isinstance(config, ExpertGPTConfig):
        leave_out_feed_forward(whole)
    every = split_gpt(whole, boundaries)
    stages = {number: cast(GPTStage, every[number]) for number in numbers}
    for name, full in gpt_parameters(config, seed):
        for stage in stages.values():
            for own in [name, HEAD] if name == TOKEN and config.tie_embeddings else [name]:
                if own in dict(stage.named_parameters(remove_duplicate=False)):
                    prefix, _, leaf = own.rpartition(".")
                    take(stage.get_submodule(prefix), leaf, whole.local_part(name, full).to(device), full)
    for stage in stages.values():
        if config.tie_embeddings and stage.embedding is not None and stage.head is not None:
            stage.get_submodule("head.projection").register_parameter("weight", stage.get_parameter(TOKEN))
        if isinstance(config, ExpertGPTConfig):
            put_divided_mixtures(
                stage,
                config,
                seed=seed,
                num_microbatches=num_microbatches,
                sequence_parallel=sp,
                random_states=random_states,
                tp=groups.tp,
                ep=groups.ep,
                counted_over=groups.tokens if sp else groups.dp,
            )
    return stages


def random_seed(layout: MeshLayout, rank: int, seed: int) -> int:
    """The seed of a rank's dropout: alike along tp, whose ranks have the same tensors, and different along all others.

    Along dp (and ep, cp) ranks have other rows: with one seed, all replicas would drop the same places of their
    activations. Along pp they have other layers. What is divided along tp draws from the tracker's own state, which is
    seeded with this number + 2718 + the place on tp: the stride keeps all of these apart.

    **Communication** and **Memory**: none.

    Args:
        layout, rank: of the mesh, and on it.
        seed: of the run.
    """
    pp, dp, ep, cp, _ = layout.coordinates(rank)
    place = ((pp * layout.dp + dp) * layout.ep + ep) * layout.cp + cp
    return seed + place * (SPLIT_OFFSET + layout.tp)
