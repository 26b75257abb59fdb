"""Who averages which gradient, and which count in a norm, when ep ranks have different experts and different tokens.

Each of R = dp x ep ranks has rows of its own; the loss of a step is the mean of their losses, so the gradient of any
parameter is (1/R) of the sum of the R ranks' gradients.

    a router, a norm, ...    every rank has it:           its gradient is one term      sum over dp x ep, divide by R
    an expert                its ep rank has it, and dp   its gradient is the sum of    sum over dp,      divide by R
                             replicas of that             ep terms already: rows of
                             (expert data parallelism)    all ep ranks came here

The divisor is R for both. A mean over the expert's own dp group would be ep times too large; a sum over all R ranks
would mix different experts that happen to have the same name.

Sources: Rajbhandari et al., "DeepSpeed-MoE", 2201.05596, section 4; Megatron-LM, whose optimizer scales the expert
gradients by expert data-parallel size / data-parallel size.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.clipping import count_once
from dtlearn.sharing.shards import rank_and_size

from .experts import Experts


def expert_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of all experts of a model, a stage or a mixture that are here, by name."""
    prefixes = tuple(f"{name}." if name else "" for name, part in model.named_modules() if isinstance(part, Experts))
    return {name: p for name, p in model.named_parameters() if prefixes and name.startswith(prefixes)}


def other_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """All parameters outside of experts, by name: the same on all dp x ep ranks."""
    experts = expert_parameters(model)
    return {name: p for name, p in model.named_parameters() if name not in experts}


@torch.no_grad()
def average_gradients(
    model: nn.Module,
    *,
    expert_replicas: dist.ProcessGroup | None,
    replicas: dist.ProcessGroup | None = None,
) -> None:
    """After the last backward pass of a step: make every gradient that of the mean of all ranks' losses.

    **Communication**: one all-reduce of all experts' gradients over `expert_replicas`, one of all others' over
    `replicas`: of n bytes each rank sends 2n (t-1)/t. In a group of one rank none.
    **Memory**: a copy of the gradients, for a moment.

    Args:
        model: after backward; all its trained parameters have a gradient on all ranks, or on none.
        expert_replicas: ranks with the same experts and other tokens: dp. None: all ranks, when ep is 1.
        replicas: ranks with other tokens: dp x ep. None: all ranks.
    """
    _, num_replicas = rank_and_size(replicas)
    _sum_and_divide(expert_parameters(model).values(), num_replicas, expert_replicas)
    _sum_and_divide(other_parameters(model).values(), num_replicas, replicas)


def counted_parameters(model: nn.Module, *, group: dist.ProcessGroup | None = None) -> list[torch.Tensor]:
    """The parameters that this rank counts in the whole gradient's norm: its experts; on the first ep rank all others.

        clip_grad_norm_(model.parameters(), 1.0, counted=counted_parameters(model, group=ep), groups=[ep])

    **Communication** and **Memory**: none.

    Args:
        model: after `average_gradients`.
        group: ranks among which the experts are divided; None: all ranks.
    """
    others = list(other_parameters(model).values())
    return list(count_once(list(model.parameters()), others, group=group))


def _sum_and_divide(parameters: Iterable[nn.Parameter], num_replicas: int, group: dist.ProcessGroup | None) -> None:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return
    _, num_ranks = rank_and_size(group)
    if num_ranks > 1:
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat, group=group)
        for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))
    for gradient in gradients:
        gradient.div_(num_replicas)
