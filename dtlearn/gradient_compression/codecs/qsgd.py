"""QSGD: few levels, and a rounding that is right on average.

Source: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017,
arXiv:1610.02132, section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .codec import Codec, Payload, in_chunks, require_flat
from .packing import WIDTHS, pack_codes, unpack_codes


@dataclass(frozen=True)
class QSGD(Codec):
    """Each |x_i| / ||x|| is rounded to a neighbouring multiple of 1 / levels, up or down by chance, so E[Q(x)] = x.

    For a chunk of d elements E ||Q(x) - x||^2 <= min(d / levels^2, sqrt(d) / levels) ||x||^2 (Lemma 3.1): few levels
    need short chunks. Where that is 1 or more, error feedback would not keep the error small, and it is not needed: the
    noise is another one on each rank and in each step, and averages out.

    A code holds a sign and a level, 0 to `levels`: 2 levels + 1 values, in 2, 4 or 8 bits. The paper has Elias codes of
    variable length instead, which make the length of a message depend on the values; all-gather wants equal lengths.

    Args:
        levels: s, 1 to 127: 1 takes 2 bits, up to 7 take 4, up to 127 take 8.
        chunk: d, elements that share a norm; a multiple of 8.

    Raises:
        ValueError: levels or chunk out of range.
    """

    levels: int = 7
    chunk: int = 64
    unbiased = True

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 127:
            raise ValueError(f"QSGD has 1 to 127 levels, so that a code fits into a byte; got {self.levels}")
        if self.chunk < 8 or self.chunk % 8:
            raise ValueError(f"a chunk of QSGD has a multiple of 8 elements; got {self.chunk}")

    @property
    def contracts(self) -> bool:
        """Whether the bound of the lemma is less than 1."""
        return min(self.chunk / self.levels**2, math.sqrt(self.chunk) / self.levels) < 1

    @property
    def width(self) -> int:
        """Bits of a code."""
        return next(width for width in WIDTHS if 2 * self.levels + 1 <= 2**width)

    def encode(self, x: torch.Tensor, *, generator: torch.Generator | None = None) -> Payload:
        require_flat(x)
        chunks = in_chunks(x, self.chunk)  # (c, d)
        norms = torch.linalg.vector_norm(chunks, dim=1, keepdim=True)  # (c, 1)
        # Zeros stay zeros; NaN becomes 0 here, and its chunk's norm says that it was there.
        scaled = (chunks * (self.levels / norms)).nan_to_num_(0.0, 0.0, 0.0)  # (c, d), -s to s
        draws = torch.rand(chunks.shape, generator=generator, dtype=x.dtype, device=x.device)
        # Up with the probability of what is over: floor(y + u) is floor(y) + 1 if u >= 1 - (y - floor(y)).
        rounded = (scaled + draws).floor_().clamp_(-self.levels, self.levels)
        codes = (rounded + self.levels).to(torch.uint8).view(-1)[: len(x)]  # 0 to 2 s
        return norms.view(-1), pack_codes(codes, self.width)

    def decode(self, payload: Payload, numel: int) -> torch.Tensor:
        norms, packed = payload
        codes = in_chunks(unpack_codes(packed, self.width, numel), self.chunk)  # (c, d)
        return ((codes.to(norms.dtype) - self.levels) * (norms[:, None] / self.levels)).view(-1)[:numel]

    def nbytes(self, numel: int) -> int:
        """A norm for each chunk, 4 bytes, and n codes."""
        return 4 * -(-numel // self.chunk) + -(-numel * self.width // 8)
