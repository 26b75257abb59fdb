"""Muon on shards: its update needs a whole matrix, so each matrix belongs to one rank, and the work is balanced.

Muon replaces the momentum of a matrix by a nearly orthogonal one with the same singular vectors, computed by
Newton-Schulz iterations: products of the matrix with itself. They need all of its rows, also those of other ranks.

Those products take far more FLOPs than Adam's update, so dividing them saves time: without ZeRO all N ranks
orthogonalize the same matrices. Their cost is not proportional to the number of elements: a long, narrow matrix takes
fewer FLOPs for each of them than a square one.

Sources: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", kellerjordan.github.io/posts/muon,
2024; Liu et al., "Muon is Scalable for LLM Training", 2502.16982; `torch.optim.Muon`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist

from ..partition.partition import Partition
from ..stages.zero1 import ZeroRedundancyOptimizer

STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of `torch.optim.Muon`: chosen to grow small singular values fast


def newton_schulz(matrix: torch.Tensor, steps: int = STEPS) -> torch.Tensor:
    """A matrix with the same singular vectors, whose singular values are all about 1.

    Args:
        matrix: (m, n).
        steps: iterations. Each maps a singular value s to a s + b s^3 + c s^5.

    Returns:
        (m, n). After 5 steps all singular values that were above 0.005 of the matrix's norm lie between 0.68 and 1.16.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x: torch.Tensor = matrix.mT if is_tall else matrix  # so that x x^T is the smaller product
    x = x / x.norm()  # the sum of the squares of all singular values is 1: none is larger
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if is_tall else x


def newton_schulz_flops(shape: Sequence[int], steps: int = STEPS) -> float:
    """FLOPs of `newton_schulz`: with k the smaller and l the larger dimension, 4 k^2 l + 2 k^3 in each step.

    A product of (k, l) and (l, m) counts 2klm.

    Raises:
        ValueError: it is no matrix.
    """
    if len(shape) != 2:
        raise ValueError(f"Muon is for matrices, got a parameter of shape {tuple(shape)}: give others to AdamW")
    small, large = sorted(shape)
    return steps * (4.0 * small**2 * large + 2.0 * small**3)


def sharded_muon(
    matrices: Any,
    *,
    process_group: dist.ProcessGroup | None = None,
    gradients: Literal["averaged", "local"] = "averaged",
    **defaults: Any,
) -> ZeroRedundancyOptimizer:
    """PyTorch's Muon, with each matrix on one rank, balanced by FLOPs.

    **Communication**: as `ZeroRedundancyOptimizer`, with n = N times the bytes of the rank that owns most: what is
    balanced by FLOPs is not balanced by bytes.
    **Memory**: the momentum of the matrices that this rank owns.

    Args:
        matrices: two-dimensional parameters, or groups of them.
        process_group, gradients: as `ZeroRedundancyOptimizer`.
        defaults: of `torch.optim.Muon`, such as `lr`.

    Raises:
        ValueError: a parameter is no matrix.
    """
    return ZeroRedundancyOptimizer(
        matrices,
        torch.optim.Muon,
        process_group=process_group,
        gradients=gradients,
        layout="whole tensors",
        cost=newton_schulz_flops,
        **defaults,
    )


def cost_of_ranks(partition: Partition, costs: Sequence[float]) -> list[float]:
    """The cost of each rank's work, if a parameter costs what `costs` says, and a piece of it its share of that.

    The step takes as long as the busiest rank: sum / (N * max) of it is the share of the ranks' time that is used.

    Args:
        partition: of the parameters.
        costs: by the parameter's number.
    """
    return [
        sum(costs[piece.parameter] * piece.numel / partition.sizes[piece.parameter] for piece in partition.slices(rank))
        for rank in range(partition.num_ranks)
    ]
