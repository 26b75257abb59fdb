"""One bit for each element: its sign, and a scale for each chunk.

Sources: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
Speech DNNs", Interspeech 2014; Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression
Schemes", ICML 2019, arXiv:1901.09847 (the scale).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .codec import Codec, Payload, in_chunks, require_flat
from .packing import pack_bits, unpack_bits

__all__ = ["PackedSign", "pack_bits", "unpack_bits"]


@dataclass(frozen=True)
class PackedSign(Codec):
    """The sign of each element in a bit, and the mean |x| of each chunk as its scale: 1/32 of float32, and the scales.

    The scale makes it a contraction: for a chunk of d elements ||C(x) - x||^2 = (1 - ||x||_1^2 / (d ||x||_2^2))
    ||x||^2, at most (1 - 1/d) ||x||^2 (Karimireddy et al.). The bare sign is none: its error does not
    shrink with the gradient. A bit has two values, so the sign of 0 is +; in a chunk of zeros the scale is 0.

    Args:
        chunk: d, elements that share a scale; a multiple of 8.

    Raises:
        ValueError: such a chunk is not possible.
    """

    chunk: int = 1024

    def __post_init__(self) -> None:
        if self.chunk < 8 or self.chunk % 8:
            raise ValueError(f"a chunk of PackedSign has a multiple of 8 elements; got {self.chunk}")

    def sizes(self, numel: int, like: torch.Tensor) -> torch.Tensor:
        """How many elements each chunk has: (ceil(n / d),); the last may have fewer."""
        starts = torch.arange(0, numel, self.chunk, device=like.device)
        return (numel - starts).clamp(max=self.chunk).to(like.dtype)

    def encode(self, x: torch.Tensor, *, generator: torch.Generator | None = None) -> Payload:
        require_flat(x)
        scales = in_chunks(x, self.chunk).abs().sum(1) / self.sizes(len(x), x)  # (c,)
        return scales, pack_bits(x >= 0)

    def decode(self, payload: Payload, numel: int) -> torch.Tensor:
        scales, packed = payload
        signs = unpack_bits(packed, numel).to(scales.dtype).mul_(2).sub_(1)  # +1 and -1
        return (in_chunks(signs, self.chunk) * scales[:, None]).view(-1)[:numel]

    def nbytes(self, numel: int) -> int:
        """n / 8 for the signs, and 4 for each chunk."""
        return -(-numel // 8) + 4 * -(-numel // self.chunk)
