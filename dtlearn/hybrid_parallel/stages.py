"""This rank's stages of a GPT whose layers are divided over its tensor-parallel group: built without the others'.

Of each whole parameter, drawn one after the other, a rank keeps its part, if one of its stages has it. So the model is
that of `GPT(config)` after `torch.manual_seed(seed)` under every layout, and no rank ever has all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import torch
import torch.distributed as dist

from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel.split_model import GPTStage, split_gpt
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.tensor_parallel.initial_weights import gpt_parameters
from dtlearn.tensor_parallel.layers.parameters import take
from dtlearn.tensor_parallel.random_states import SPLIT_OFFSET, RandomStateTracker

from .layout import MeshLayout

TOKEN, HEAD = "embedding.token.weight", "head.projection.weight"  # one weight, if they are tied


def build_stages(
    config: GPTConfig,
    boundaries: Sequence[int],
    numbers: Collection[int],
    *,
    seed: int,
    sequence_parallel: bool = False,
    random_states: RandomStateTracker | None = None,
    device: torch.device | str = "cpu",
    group: dist.ProcessGroup | None = None,
) -> dict[int, GPTStage]:
    """Stages of `ParallelGPT`, by number; their parameters have the names that they have in `GPT`.

    **Communication**: none: all ranks draw the same numbers.
    **Memory**: this rank's part of its stages; one whole parameter, while it is cut.

    Args:
        config: of the whole model.
        boundaries: as `split_gpt` takes them.
        numbers: of the stages that this rank has.
        seed: of the weights, the same on all ranks.
        sequence_parallel, random_states: as for `ParallelGPT`.
        device: of the parameters.
        group: the tensor-parallel ranks.
    """
    whole = ParallelGPT(
        config, device="meta", sequence_parallel=sequence_parallel, random_states=random_states, group=group
    )
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
