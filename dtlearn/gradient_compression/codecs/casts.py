"""The mildest codec: fewer bits for each number."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .codec import Codec, Payload, require_flat


@dataclass(frozen=True)
class CastCodec(Codec):
    """Each number in a smaller dtype, rounded to the nearest.

    With float16 |C(x) - x| <= 2^-11 |x| for 6e-5 < |x| < 65,504; more than that becomes infinity. With bfloat16 it is
    2^-8 |x|, over nearly the whole range of float32.

    As a hook it sends N - 1 payloads to each rank, where `dtlearn.sharing.comm_hooks.fp16_compress_hook` can add up on
    the way: sums of casts are casts again, so an all-reduce will do. It stands here to be compared, and for error
    feedback.

    Args:
        dtype: float16 or bfloat16; or float32, which is no compression: the sum of float32s, gathered.

    Raises:
        ValueError: another dtype.
    """

    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        if self.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise ValueError(f"CastCodec sends float16, bfloat16 or float32; got {self.dtype}")

    def encode(self, x: torch.Tensor, *, generator: torch.Generator | None = None) -> Payload:
        require_flat(x)
        return (x.to(self.dtype, copy=True),)

    def decode(self, payload: Payload, numel: int) -> torch.Tensor:
        return payload[0].float()

    def nbytes(self, numel: int) -> int:
        """2 n; of float32 4 n."""
        return self.dtype.itemsize * numel
