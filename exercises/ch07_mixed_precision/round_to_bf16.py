# ch07.round_to_bf16: edit this file, then run `dtlearn grade ch07.round_to_bf16`.
"""Round float32 numbers to bfloat16, by arithmetic on their bits.

A float32 number has one sign bit, 8 bits of exponent and 23 of mantissa. bfloat16 has the same sign
and exponent, and keeps the first 7 bits of the mantissa. So every bfloat16 number is a float32 number
whose last 16 bits are 0, and the bfloat16 numbers of one sign are in the order of their bits.

**Given** `x`, a float32 tensor of any shape.

**Return** a new float32 tensor of that shape. Each element is

- the nearest bfloat16 number. If two are equally near, the one whose 16th bit, the last that is
  kept, is 0 (round to nearest, ties to even);
- for NaN: NaN;
- for what is rounded beyond the largest bfloat16 number: infinity, with its sign.

Zeros keep their sign, subnormal numbers are rounded like all others, and infinity stays.

**Example**

| float32 | its bits | last 16 bits | returned | its bits |
|---|---|---|---|---|
| 1.001953125 | `3f804000` | less than half | 1.0 | `3f800000` |
| 1.005859375 | `3f80c000` | more than half | 1.0078125 | `3f810000` |
| 1.00390625 | `3f808000` | half | 1.0 | `3f800000` |
| 1.01171875 | `3f818000` | half | 1.015625 | `3f820000` |

**Tools**: `x.view(torch.int32)` is a tensor of the same bits, read as whole numbers; `.view(torch.float32)`
reads them as float32 again. `bits >> 16` moves bits to the right, `&` and `|` combine them.

**Rules**: no communication. Use no bfloat16 type, neither torch's nor another library's.
"""

import torch


def round_to_bf16(x: torch.Tensor) -> torch.Tensor:
    """Return the nearest bfloat16 number of each element, as float32."""
    raise NotImplementedError(
        "ch07.round_to_bf16: round on the bits, and take care of NaN"
    )
