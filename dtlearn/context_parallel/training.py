"""What a step with context parallelism sums: token counts, losses and gradients, over all ranks that have other tokens.

Each rank has all parameters and meets T/cp tokens of its sequences, so its gradient of each parameter is a partial sum,
`{U_cp}`, as in data parallelism, where ranks have other sequences. For the parameters cp is more data parallelism: they
are reduced once, over the dp x cp ranks together. Sum or mean is a matter of the loss:

    loss on a rank                                          gradients over dp x cp
    its tokens' sum / all ranks' tokens    (`token_mean`)   SUM    `reduce_context_parallel_gradients`
    that times the number of ranks                          MEAN   as DDP and ZeRO take it
    the mean of its own tokens                              MEAN, and right only if all ranks have as many that count

With padding, or a prompt that does not count, ranks have different numbers of tokens that count: zigzag does not help.

Only the ranks along cp have the same sequences; along tp they have the same tokens too, and nothing is summed here.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dtlearn.sharing.shards import rank_and_size


def token_mean(loss_sum: Tensor, count: int | Tensor, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """This rank's term of the mean loss over the tokens of all ranks: the terms of all ranks add up to it.

    Its gradients are to be summed over the group. No gradient flows through the count.

    **Communication**: one all-reduce of 8 bytes. **Memory**: one number.

    Args:
        loss_sum: sum of the losses of this rank's tokens that count, (); 0 of none.
        count: how many they are.
        group: the ranks that have other tokens: cp, or dp x cp; None: all ranks.
    """
    total = torch.zeros((), dtype=torch.int64, device=loss_sum.device)
    total += count
    dist.all_reduce(total, group=group)
    return loss_sum / total.clamp(min=1)  # no token at all: 0, not NaN


@torch.no_grad()
def reported_mean(term: Tensor, *, group: dist.ProcessGroup | None = None) -> float:
    """The mean loss over the tokens of all ranks, from `token_mean`'s terms; the same on every rank.

    **Communication**: one all-reduce of a number. **Memory**: one number.

    Args:
        term: of this rank, ().
        group: as for `token_mean`.
    """
    total = term.detach().clone()
    dist.all_reduce(total, group=group)
    return total.item()


@torch.no_grad()
def reduce_context_parallel_gradients(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
    """Sum the gradients of all parameters over the group, in place: once a step, before clipping.

    A trainer with DDP or ZeRO over dp x cp has no use for it: there the reduction is theirs.

    **Communication**: one all-reduce of all gradients together, for each dtype among them; of n bytes each rank sends
    2n (N-1)/N.
    **Memory**: a copy of the gradients, during the call.

    Args:
        module: the model. All ranks call it, with gradients of the same parameters.
        group: cp; or dp x cp, if every rank's loss is its term of the mean over all of them; None: all ranks.
    """
    if rank_and_size(group)[1] == 1:
        return
    by_dtype: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for parameter in module.parameters():
        if parameter.grad is not None:  # None: frozen or unused, and so on every rank
            by_dtype[parameter.grad.dtype].append(parameter.grad)
    for gradients in by_dtype.values():
        together = torch.cat([gradient.flatten() for gradient in gradients])  # one message instead of many
        dist.all_reduce(together, group=group)
        for gradient, total in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))
