"""Gradients averaged in 16 bits: half the bytes of float32, and three new ways to lose a gradient.

The mean over N ranks is a sum and a division, and in float16 the order matters. Divide first, and a gradient that is
below the smallest subnormal after it, 6e-8, is zero before anybody has added it. Sum first, and N gradients of 65,504/N
or more become infinite. bfloat16 has the range of float32, so neither happens; but its sums keep 8 bits, see
`rounding_error.py`.

What others do:

- PyTorch's `DistributedDataParallel` divides first: it multiplies by 1/N while it copies a gradient into its bucket, in
  the gradient's own dtype, which under autocast is float32 (`torch/csrc/distributed/c10d/reducer.cpp`). Its
  `fp16_compress_hook` casts to float16, then divides, then sums.
- FSDP2 (`MixedPrecisionPolicy(reduce_dtype=...)`) reduces in the dtype of the gradients if none is given. In float32
  and bfloat16 it asks NCCL for the mean; in float16 it divides by about the root of N first and by the rest afterwards
  (`_get_gradient_divide_factors` in `torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py`).
- Megatron-LM divides first and sums in the dtype of its gradient buffers, float32 with `grad_reduce_in_fp32`. With
  `average_in_collective` NCCL divides; with `reduce_scatter_with_fp32_accumulation` it sends 16 bits and adds in
  float32, as `fp32_sum.py` does (`megatron/core/distributed/distributed_data_parallel_config.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

WHEN = ("before", "after", "both")


def average(
    gradients: Sequence[torch.Tensor],
    *,
    when: str = "before",
    in_dtype: torch.dtype = torch.float32,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Replace each gradient by its mean over the ranks, summed in `in_dtype`. The gradients keep their own dtype.

    **Communication**: one all-reduce of all n elements, `in_dtype.itemsize` bytes each.
    **Memory**: the buffer of those bytes.

    Args:
        gradients: the same shapes in the same order on every rank, such as `[p.grad for p in model.parameters()]`.
        when: divide "before" the sum, "after" it, or "both": by about the root of N each time.
        in_dtype: of the buffer that is divided and summed.
        group: default: the world.

    Raises:
        ValueError: no gradients, another `when`, or a dtype that is not a floating-point one of 16 or more bits.
    """
    buffer = pack(gradients, in_dtype)
    first, last = divisors(dist.get_world_size(group), when)
    buffer /= first
    dist.all_reduce(buffer, group=group)
    buffer /= last
    unpack(buffer, gradients)


def divisors(num_ranks: int, when: str) -> tuple[float, float]:
    """The divisors before and after the sum; their product is N.

    "both" gives a power of two near the root of N, as FSDP2 does in float16:

    >>> divisors(64, "both"), divisors(6, "both")
    ((8, 8.0), (4, 1.5))

    Raises:
        ValueError: another `when`.
    """
    if when not in WHEN:
        raise ValueError(f"when must be one of {', '.join(WHEN)}; got {when!r}")
    if when == "both":
        first = 1
        while num_ranks % first == 0 and num_ranks / first > first:
            first *= 2
        return first, num_ranks / first
    return (num_ranks, 1) if when == "before" else (1, num_ranks)


def pack(gradients: Sequence[torch.Tensor], dtype: torch.dtype, multiple_of: int = 1) -> torch.Tensor:
    """All gradients one after the other, cast to `dtype`, and zeros up to a multiple: (n,), or a little longer.

    Raises:
        ValueError: as `average` does.
    """
    if not gradients:
        raise ValueError("there are no gradients to average: call it after backward(), on every rank")
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise ValueError(f"gradients are summed in float16, bfloat16, float32 or float64; got {dtype}")
    numel = sum(gradient.numel() for gradient in gradients)
    buffer = torch.zeros(numel + -numel % multiple_of, dtype=dtype, device=gradients[0].device)
    for gradient, part in zip(gradients, parts_of(buffer, gradients), strict=True):
        part.copy_(gradient.detach())
    return buffer


def unpack(buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> None:
    """Write a buffer of `pack` back into the gradients, each in its own dtype."""
    with torch.no_grad():
        for gradient, part in zip(gradients, parts_of(buffer, gradients), strict=True):
            gradient.copy_(part)


def parts_of(buffer: torch.Tensor, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views of the buffer, shaped as the gradients."""
    sizes = [gradient.numel() for gradient in gradients]
    parts = buffer[: sum(sizes)].split(sizes)
    return [part.view(gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]
