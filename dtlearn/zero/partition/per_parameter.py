"""Per parameter: each parameter is cut along its first dimension, into the chunks that `torch.chunk` gives.

A cut never goes through a row, so a piece is a tensor with the parameter's other dimensions. The last chunks are
shorter or empty where N does not divide the rows; each rank stores as much as the first one, the rest as padding.

Source: PyTorch's `fully_shard` (FSDP2), whose parameters are DTensors with placement `Shard(0)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .partition import Bucket, Partition, check_sizes


def plan_per_parameter(shapes: Sequence[Sequence[int]], num_ranks: int) -> Partition:
    """Cut each parameter by rows; each is a bucket of its own.

    Args:
        shapes: of each parameter.
        num_ranks: N.

    Returns:
        The partition. With d rows, a shard has ceil(d / N) of them, and the padding is less than N rows.

    Raises:
        ValueError: fewer than one rank, a negative dimension, or a parameter without dimensions.
    """
    for number, shape in enumerate(shapes):
        check_sizes(shape, num_ranks)
        if not shape:
            raise ValueError(
                f"parameter {number} has no dimension along which it could be cut: make it of shape (1,), as "
                "fully_shard demands too"
            )
    sizes = tuple(math.prod(shape) for shape in shapes)
    buckets = []
    for number, (shape, size) in enumerate(zip(shapes, sizes, strict=True)):
        rows = -(-shape[0] // num_ranks)
        buckets.append(Bucket(number, (number,), (size,), (0,), rows * math.prod(shape[1:]), num_ranks))
    return Partition(sizes, num_ranks, tuple(buckets))
