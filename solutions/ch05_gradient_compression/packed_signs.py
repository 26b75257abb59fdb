"""One bit for each element: its sign. And one number for each chunk: how large its elements are.

The signs of a gradient fit into an eighth of a byte each, 1/32 of float32. No torch dtype has one bit, so
eight of them are packed into a byte. What is lost is the size of each element; what takes its place is
the mean magnitude of its chunk. Without that scale the gradient would not even shrink near a minimum.

**Given** `chunk`, how many elements in a row share a scale: a multiple of 8.

**Return** a tuple of two functions. Neither changes what it is given, nor what it has returned before.

- `pack(x)`, for a float32 vector of n elements, returns a tuple of two tensors, `bits` and `scales`:
    - `bits`, uint8, ⌈n / 8⌉ bytes. Element 8 j + i is in bit i of byte j, which is worth 2^i: the first
      element of each eight is in the **lowest** bit. The bit is 1 if the element is positive or 0, also
      -0.0, and 0 if it is negative. What is left of the last byte is filled up with 0;
    - `scales`, float32, ⌈n / chunk⌉ numbers: of each chunk the mean of |x|. The last chunk may be
      shorter.
- `unpack(bits, scales, n)` returns a float32 vector of n elements: each is the scale of its chunk if its
  bit is 1, and minus that scale if it is 0.

n may be any number, also 0. Both are called on other ranks than each other: what `unpack` is given need
not come from your `pack`.

**Example** with `chunk` 8 and n = 10; of the second byte 6 bits are filled up.

| | elements 0 to 7 | 8 and 9 |
|---|---|---|
| `x` | `[1, -3, 0, 2, -2, -4, 1, 3]` | `[-5, 7]` |
| bits, the first element first | `1 0 1 1 0 0 1 1` | `0 1 0 0 0 0 0 0` |
| `bits` | 1 + 4 + 8 + 64 + 128 = 205 | 2 |
| `scales` | 16 / 8 = 2.0 | 12 / 2 = 6.0 |
| unpacked | `[2, -2, 2, 2, -2, -2, 2, 2]` | `[-6, 6]` |

**Tools**: `torch.nn.functional.pad(x, (0, m))` adds m zeros. `1 << i` is 2^i, `byte >> i` moves bit i to the
lowest place, `& 1` keeps the lowest bit; all three work on tensors, too. uint8 has no negative numbers.

**Rule**: no communication.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

Pack = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
Unpack = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def packed_signs(chunk: int) -> tuple[Pack, Unpack]:
    """Return pack and unpack for chunks of this size."""

    def pack(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n,) -> the signs, (ceil(n / 8),), and the scales, (ceil(n / chunk),)."""
        # BEGIN SOLUTION: eight signs to a byte; the mean magnitude of each chunk
        signs = functional.pad((x >= 0).int(), (0, -len(x) % 8)).view(-1, 8)
        bits = (signs << torch.arange(8, device=x.device)).sum(1)
        parts = x.abs().split(chunk) if len(x) else ()
        scales = [part.mean() for part in parts]
        return bits.to(torch.uint8), torch.stack(scales) if scales else x.new_empty(0)
        # END SOLUTION

    def unpack(bits: torch.Tensor, scales: torch.Tensor, n: int) -> torch.Tensor:
        """The signs times their scales, (n,)."""
        # BEGIN SOLUTION: each byte to eight signs, of which n count, times the scales of their chunks
        ones = (bits[:, None] >> torch.arange(8, device=bits.device)) & 1  # (bytes, 8)
        signs = 2 * ones.int().flatten()[:n] - 1
        return signs * scales.repeat_interleave(chunk)[:n]
        # END SOLUTION

    return pack, unpack
