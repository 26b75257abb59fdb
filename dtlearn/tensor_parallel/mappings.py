"""The conjugate operators: what is communicated where a region of the model begins or ends, forward and backward.

A *tensor-parallel region* is computed in parts, by features. A *sequence-parallel region* is computed in parts, by
tokens. The backward pass of an operator is another operator of this file, with the words turned round:

    operator                                     forward          backward          paper
    copy_to_tensor_parallel_region               nothing          all-reduce        f
    reduce_from_tensor_parallel_region           all-reduce       nothing           g
    scatter_to_tensor_parallel_region            own part         all-gather
    gather_from_tensor_parallel_region           all-gather       own part
    scatter_to_sequence_parallel_region          own part         all-gather
    gather_from_sequence_parallel_region         all-gather       reduce-scatter    g (of the second paper)
    reduce_scatter_to_sequence_parallel_region   reduce-scatter   all-gather        g-bar

In a group of one rank none of them communicates. All ranks of the group call them, in the same order. The functions are
those of `dtlearn.sharing.differentiable` under Megatron-LM's names, which say in what region one is, with the dim that
belongs to it: features are the last dim of (B, T, C), tokens are dim 1. (Megatron-LM says `tensor_model_parallel`, and
its tensors are (T, B, C), so that the sequence is dim 0 there.)

Sources: `core/tensor_parallel/mappings.py`; Shoeybi et al., "Megatron-LM", 1909.08053, section 3, figure 3 (f and g);
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2205.05198, section 4.2.2, figure
5.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from dtlearn.sharing.differentiable import copy_to, gather_from, reduce_from, reduce_scatter_to, scatter_to


def copy_to_tensor_parallel_region(x: Tensor, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """f, (B, T, C) -> (B, T, C): `x` as it is; in backward the sum of all ranks' gradients; see `copy_to`.

    **Communication**: backward: one all-reduce; of n bytes in `x`, each rank sends 2n (t-1)/t.
    **Memory**: backward: the gradient once more.
    """
    return copy_to(x, group=group)


def reduce_from_tensor_parallel_region(x: Tensor, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """g, (B, T, C) -> (B, T, C): the sum of all ranks' `x`; in backward the gradient as it is; see `reduce_from`.

    **Communication**: one all-reduce; of n bytes in `x`, each rank sends 2n (t-1)/t.
    **Memory**: the sum, beside `x`.
    """
    return reduce_from(x, group=group)


def scatter_to_tensor_parallel_region(x: Tensor, dim: int = -1, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """This rank's features, (B, T, C) -> (B, T, C/t); in backward the gradients of all; see `scatter_to`.

    **Communication**: backward: one all-gather; of n bytes in `x`, each rank sends n (t-1)/t.
    **Memory**: the part.
    """
    return scatter_to(x, dim, group=group)


def gather_from_tensor_parallel_region(x: Tensor, dim: int = -1, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """All features, (B, T, C/t) -> (B, T, C); in backward this rank's part of the gradient; see `gather_from`.

    What follows is computed by all ranks alike.

    **Communication**: one all-gather; of n bytes in the result, each rank sends n (t-1)/t.
    **Memory**: the result.
    """
    return gather_from(x, dim, group=group)


def scatter_to_sequence_parallel_region(x: Tensor, dim: int = 1, *, group: dist.ProcessGroup | None = None) -> Tensor:
    """This rank's tokens, (B, T, C) -> (B, T/t, C); in backward the gradients of all tokens; see `scatter_to`.

    **Communication**: backward: one all-gather; of n bytes in `x`, each rank sends n (t-1)/t.
    **Memory**: the part.
    """
    return scatter_to(x, dim, group=group)


def gather_from_sequence_parallel_region(
    x: Tensor, dim: int = 1, tensor_parallel_output_grad: bool = True, *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """All tokens, (B, T/t, C) -> (B, T, C); in backward the summed gradients of this rank's tokens; see `gather_from`.

    **Communication**: one all-gather, and in backward one reduce-scatter; of n bytes in the
    result, each rank sends n (t-1)/t in either: together as much as the all-reduce of f.
    **Memory**: the result; backward: the gradient once more.

    Args:
        x: this rank's tokens.
        dim: of the sequence.
        tensor_parallel_output_grad: what follows is a tensor-parallel region, where each rank has
            a partial gradient. False: all ranks compute the same from here, and each takes its
            tokens' gradient as it is; a sum would be t times too large.
        group: None: all ranks.
    """
    return gather_from(x, dim, partial_gradients=tensor_parallel_output_grad, group=group)


def reduce_scatter_to_sequence_parallel_region(
    x: Tensor, dim: int = 1, *, group: dist.ProcessGroup | None = None
) -> Tensor:
    """This rank's tokens of the sum of all `x`, (B, T, C) -> (B, T/t, C); see `reduce_scatter_to`.

    **Communication**: one reduce-scatter, and in backward one all-gather; of n bytes in `x`, each
    rank sends n (t-1)/t in either: together as much as the all-reduce of g.
    **Memory**: the part; for a moment `x` once more.
    """
    return reduce_scatter_to(x, dim, group=group)
