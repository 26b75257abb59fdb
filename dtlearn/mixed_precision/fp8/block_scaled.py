"""MXFP8: FP8 with a scale for every 32 numbers, which is a power of two and takes 8 bits.

An outlier then costs the precision of the 31 numbers beside it, and not that of a whole tensor. A scale is an exponent
without sign and mantissa (E8M0): the byte k stands for 2^(k - 127), and 255 for NaN.

Source: OCP Microscaling Formats (MX) Specification, version 1.0, 2023, sections 5.4.1 (E8M0) and 6.3 (the scale);
Mishra et al., "Recipes for Pre-training LLMs with MXFP8", 2506.08027 (the scale rounded up).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..formats import FP8_E4M3, Format, torch_dtype
from ..rounding import round_to_nearest_even

BLOCK = 32  # numbers that share a scale
SCALE_BIAS = 127
NAN_SCALE = 255


class BlockScaled(NamedTuple):
    """A tensor in MXFP8.

    Attributes:
        elements: (..., C), in an 8-bit dtype.
        scales: (..., C / 32), in torch.float8_e8m0fnu: an element stands for itself times the scale of its block.
    """

    elements: torch.Tensor
    scales: torch.Tensor

    @property
    def nbytes(self) -> int:
        """33 for every 32 numbers."""
        return self.elements.nbytes + self.scales.nbytes

    def dequantize(self) -> torch.Tensor:
        """(..., C) float32."""
        blocks = self.elements.float().unflatten(-1, (-1, BLOCK))  # (..., C / 32, 32)
        values: torch.Tensor = blocks * self.scales.float().unsqueeze(-1)
        return values.flatten(-2)


def quantize_blocks(x: torch.Tensor, fmt: Format = FP8_E4M3, *, round_up: bool = False) -> BlockScaled:
    """Give every 32 neighbours of the last dimension a scale, and cast them to a format of 8 bits.

    The scale is the specification's: the largest power of two that is not above the block's amax, divided by the
    largest power of two of the format. So scaled numbers are below 512 in E4M3, which ends at 448: those between are
    clipped, and lose up to an eighth. With `round_up` it is amax divided by the format's largest number, rounded up to
    a power of two: nothing is clipped. So do cuBLAS, torchao's `RCEIL`, and Mishra et al. (2506.08027), whose
    pre-training diverged with the specification's. A block with a number that is not finite gets the scale NaN.

    **Memory**: 33 bytes for every 32 elements.

    Args:
        x: (..., C), C a multiple of 32.
        fmt: FP8_E4M3 or FP8_E5M2.
        round_up: the scale upwards, in place of the specification's.

    Raises:
        ValueError: 32 does not divide C, x holds integers, or another format.
    """
    _check(x, fmt)
    blocks = x.detach().unflatten(-1, (-1, BLOCK))  # (..., C / 32, 32)
    amax = blocks.abs().amax(-1, keepdim=True).double()
    rounded_up, specified = (amax / fmt.largest).log2().ceil(), amax.log2().floor() - fmt.largest_exponent
    exponent = rounded_up if round_up else specified  # of the scale; -inf for a block of zeros
    exponent = exponent.clamp(-SCALE_BIAS, SCALE_BIAS)
    elements = round_to_nearest_even(blocks.double() / exponent.exp2(), fmt, saturate=True)
    codes = torch.where(amax.isfinite(), exponent + SCALE_BIAS, NAN_SCALE).squeeze(-1)
    scales = codes.to(torch.uint8).view(torch.float8_e8m0fnu)
    return BlockScaled(elements.flatten(-2).to(torch_dtype(fmt)), scales)


def _check(x: torch.Tensor, fmt: Format) -> None:
    if torch_dtype(fmt).itemsize != 1:
        raise ValueError(f"MXFP8 has elements of an 8-bit format, FP8_E4M3 or FP8_E5M2; got {fmt.name}")
    if not x.is_floating_point():
        raise ValueError(f"only floating-point tensors can be cast to {fmt.name}; got {x.dtype}: convert with .float()")
    if x.dim() == 0 or x.shape[-1] % BLOCK:
        raise ValueError(
            f"blocks have {BLOCK} elements, which must divide the last dimension; got the shape {tuple(x.shape)}: "
            f"pad it with zeros (torch.nn.functional.pad), they change no scale"
        )
