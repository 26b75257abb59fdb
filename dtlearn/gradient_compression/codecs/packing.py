"""Small codes in bytes: 8 codes of one bit in a byte, or 4 of two bits, or 2 of four."""

from __future__ import annotations

import torch

WIDTHS = (1, 2, 4, 8)  # bits of a code


def pack_codes(codes: torch.Tensor, width: int) -> torch.Tensor:
    """Put codes of `width` bits into bytes: (n,) uint8, each less than 2^width -> (ceil(n width / 8),) uint8.

    The first code is in the lowest bits of the first byte; zeros fill the last byte.

    Raises:
        ValueError: a width that is not 1, 2, 4 or 8.
    """
    if width not in WIDTHS:
        raise ValueError(f"codes are 1, 2, 4 or 8 bits wide; got {width}")
    each = 8 // width  # codes in a byte
    rows = torch.nn.functional.pad(codes, (0, -len(codes) % each)).view(-1, each)
    packed: torch.Tensor = rows[:, 0].clone()
    for place in range(1, each):
        packed |= rows[:, place] << (place * width)
    return packed


def unpack_codes(packed: torch.Tensor, width: int, numel: int) -> torch.Tensor:
    """The `numel` codes in some bytes: what `pack_codes` was given."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=packed.device)
    codes: torch.Tensor = (packed[:, None] >> shifts) & (2**width - 1)  # (bytes, 8 / width)
    return codes.view(-1)[:numel]


def pack_bits(bits: torch.Tensor) -> torch.Tensor:
    """Put truth values into bits: (n,) bool -> (ceil(n / 8),) uint8; the first is the lowest bit of the first byte."""
    return pack_codes(bits.view(torch.uint8), 1)


def unpack_bits(packed: torch.Tensor, numel: int) -> torch.Tensor:
    """The first `numel` bits of some bytes, as (numel,) bool: what `pack_bits` was given."""
    return unpack_codes(packed, 1, numel).bool()
