"""ep in a GPT on a mesh: mixtures in the place of feed-forward networks, whose experts are divided over ep.

For all that is no expert, ep ranks are replicas with rows of their own. Along tp experts are not divided: each tp rank
has those of its ep rank whole.

    without sequence parallelism    tp ranks have the same tokens, and compute the same
    under it                        a tp rank routes its own T/tp tokens: router and experts have partial gradients,
                                    which are summed over tp with those of the norms

The auxiliary loss is that of the whole micro-batch: choices are counted over all ranks that have tokens of their own,
dp, ep, cp, and tp under sequence parallelism. f P is linear in P, so the ranks' terms add up to the loss of one process
which has all these tokens. (A micro-batch, not a step: one process with m micro-batches counts each by itself, too.)

Source: Megatron-LM, `core/transformer/moe`, where tp may divide experts, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.expert_parallel import ExpertGPTConfig, Experts, mixtures, put_mixtures
from dtlearn.expert_parallel.mixture import Router
from dtlearn.models import GPTConfig
from dtlearn.sharing.shards import rank_and_size
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.tensor_parallel.gpt import whole_shapes
from dtlearn.tensor_parallel.initial_weights import shapes_only
from dtlearn.tensor_parallel.random_states import RandomStateTracker
from dtlearn.tensor_parallel.sequence_parallel import mark_sequence_parallel


def leave_out_feed_forward(model: ParallelGPT) -> None:
    """Take the networks out of all blocks, so that no rank draws them: mixtures come in their place.

    **Communication** and **Memory**: none.

    Args:
        model: without memory yet.
    """
    for block in model.blocks:
        block.add_module("feed_forward", nn.Identity())


def put_divided_mixtures(
    stage: nn.Module,
    config: ExpertGPTConfig,
    *,
    seed: int,
    num_microbatches: int,
    sequence_parallel: bool,
    random_states: RandomStateTracker | None,
    tp: dist.ProcessGroup | None,
    ep: dist.ProcessGroup | None,
    counted_over: dist.ProcessGroup | None,
) -> None:
    """Put a mixture in each block of a stage, with this rank's E/ep experts.

    **Communication**: none here; in each forward pass that of `ExpertParallelMixture`, over ep.
    **Memory**: E/ep experts for each block; one whole parameter, while it is cut.

    Args:
        stage: of a `ParallelGPT`, on its device.
        config: of the whole model.
        seed: of the weights, the same on all ranks.
        num_microbatches: m; the loss of a step is the mean over them, and so are the auxiliary losses.
        sequence_parallel: tp ranks have tokens of their own.
        random_states: for dropout of such tokens.
        tp, ep: this rank's groups.
        counted_over: all ranks that have tokens of their own.
    """
    put_mixtures(stage, config, seed=seed, group=ep, replicas=counted_over)
    terms = rank_and_size(tp)[1] if sequence_parallel else 1  # over tp gradients are summed, elsewhere averaged
    for mixture in mixtures(stage):
        mixture.auxiliary_scale = 1 / (num_microbatches * terms)
        if sequence_parallel:
            mixture.dropout = DropoutOfOwnTokens(config.dropout, random_states)
            mark_sequence_parallel(mixture.router, group=tp)
            mark_sequence_parallel(mixture.experts, group=tp)


class DropoutOfOwnTokens(nn.Dropout):
    """Dropout of tokens that other tp ranks do not have: masks are from the rank's own random state.

    **Communication** and **Memory**: none, and that of dropout.

    Args:
        p: probability.
        random_states: of the rank; None: the default state.
    """

    def __init__(self, p: float, random_states: RandomStateTracker | None) -> None:
        super().__init__(p)
        self.random_states = random_states

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., C) -> (..., C)."""
        if self.random_states is None:
            return super().forward(x)
        with self.random_states.fork():
            return super().forward(x)


class SomeParameters(nn.Module):
    """A look at some parameters of a module, under the names that they have there: for an optimizer of their own.

    **Communication** and **Memory**: none.

    Args:
        module: that has them.
        names: which ones.
    """

    def __init__(self, module: nn.Module, names: Collection[str]) -> None:
        super().__init__()
        self._named = {name: p for name, p in module.named_parameters() if name in names}  # not registered: no second

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Name and parameter, in the module's order; `parameters()` too."""
        yield from self._named.items()


def mesh_shapes(config: GPTConfig) -> dict[str, torch.Size]:
    """The shapes of the whole model's parameters, by name, with all experts; a tied one once. No model is built.

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model, of either kind.
    """
    shapes = whole_shapes(config)
    if not isinstance(config, ExpertGPTConfig):
        return shapes
    own, found = mixture_shapes(config), dict[str, torch.Size]()
    for name, shape in shapes.items():  # in the order of the model's parameters: that of flat buffers
        block, is_dense, _ = name.partition(".feed_forward.")
        found |= {f"{block}.feed_forward.{leaf}": own[leaf] for leaf in own} if is_dense else {name: shape}
    return found


def mixture_shapes(config: ExpertGPTConfig, ep: int = 1) -> dict[str, torch.Size]:
    """The shapes of an ep rank's part of a mixture's parameters, by name. No model is built.

    **Communication** and **Memory**: none.

    Args:
        config: of the whole model.
        ep: ranks.
    """
    sizes = config.num_experts // ep, config.hidden_size, 4 * config.hidden_size
    with shapes_only():
        parts = {"router": Router(config), "experts": Experts(*sizes)}
    return {f"{name}.{own}": p.shape for name, part in parts.items() for own, p in part.named_parameters()}
