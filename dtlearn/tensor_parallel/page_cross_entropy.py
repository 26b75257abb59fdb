"""Cross entropy of logits divided by vocabulary, on one page: the maximum, the sum and the target.

The logits z of all V tokens are the largest activation of a language model. Each of t ranks has V/t
of them, and they are never put together. For one position with the target y, and m = max z:

    loss = log(sum of exp(z_i - m) over all i) - (z_y - m)
    d loss / d z_i = exp(z_i - m) / sum - (1 if i is y, else 0)

A rank has a part of the maximum and of the sum, and it has z_y or it does not: it sends three
numbers for each position. The gradient of its logits needs no other rank, so backward sends
nothing. Without m the exponential overflows: exp(89) is too large for float32.

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORED = -100  # a target that does not count


def sharded_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Mean loss, (), on all ranks, of this rank's logits (B, T, V/t) and all targets (B, T).

    **Communication**: forward one all-reduce (maximum) of B T numbers and one (sum) of 2 B T: with
    n bytes in B T numbers, each rank sends 6n (t-1)/t. Backward: none.
    **Memory**: kept for backward: the softmax of this rank's logits, B T V/t elements.
    """
    losses: Tensor = CrossEntropy.apply(logits, targets, group)  # (B, T)
    ignored = targets == IGNORED  # (B, T), the same on all ranks
    return losses.masked_fill(ignored, 0.0).sum() / (~ignored).sum()


class CrossEntropy(torch.autograd.Function):
    """The loss of each position, (B, T)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, group: Any) -> Tensor:
        """The maximum, then the sum and the target."""
        maximum = logits.amax(-1)  # (B, T)
        dist.all_reduce(maximum, op=dist.ReduceOp.MAX, group=group)
        z = logits - maximum[..., None]  # (B, T, V/t)

        num_columns = logits.shape[-1]
        column = targets - dist.get_rank(group) * num_columns  # (B, T)
        is_foreign = (column < 0) | (column >= num_columns)  # another rank has this target
        column = column.masked_fill(is_foreign, 0)[..., None]  # (B, T, 1)
        target = z.gather(-1, column)[..., 0].masked_fill(is_foreign, 0.0)  # (B, T) {U_t}

        exponentials = z.exp()  # (B, T, V/t)
        terms = torch.stack([exponentials.sum(-1), target])  # (2, B, T) {U_t}
        dist.all_reduce(terms, group=group)
        total, target = terms.unbind()  # (B, T) each
        ctx.save_for_backward(exponentials / total[..., None], column, is_foreign)
        return total.log() - target

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The softmax, minus 1 at the target on the rank that has it."""
        softmax, column, is_foreign = ctx.saved_tensors
        has_target = (~is_foreign)[..., None].to(softmax)  # (B, T, 1), 1 or 0
        d_logits = softmax.scatter_add(-1, column, -has_target)  # (B, T, V/t)
        return d_logits * gradient[..., None], None, None
