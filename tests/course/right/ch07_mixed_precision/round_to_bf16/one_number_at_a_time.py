"""Struct and whole numbers of Python, one element after the other."""

import math
import struct

import torch


def rounded(number: float) -> float:
    if not math.isfinite(number):
        return number
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    kept, rest = divmod(bits, 1 << 16)
    if rest > 0x8000 or (rest == 0x8000 and kept % 2):
        kept += 1
    return struct.unpack("<f", struct.pack("<I", kept << 16))[0]


def round_to_bf16(x: torch.Tensor) -> torch.Tensor:
    numbers = [rounded(number) for number in x.flatten().tolist()]
    return torch.tensor(numbers, dtype=torch.float32).reshape(x.shape)
