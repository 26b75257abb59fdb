# ch07.format_limits: edit this file, then run `dtlearn grade ch07.format_limits`.
"""Say what a floating-point format can hold, from the number of its bits.

A pattern of bits has three fields: one bit of sign, E bits of exponent e, M bits of mantissa m. Both
e and m are read as whole numbers, 0 and up. With b = 2^(E - 1) - 1, the pattern stands for

| exponent field | the number, without its sign |
|---|---|
| e = 0 | 2^(1 - b) * m / 2^M: zero, and the subnormal numbers |
| from 1 to the last but one | 2^(e - b) * (1 + m / 2^M): the normal numbers |
| the last one, all bits 1 | infinity if m = 0, otherwise NaN |

**Given** `exponent_bits`, E, from 2 to 8; `mantissa_bits`, M, from 1 to 23; and `has_infinity`. If
that is False, as in FP8 E4M3, the last exponent field holds normal numbers too. Only one pattern
(with either sign) is not a number then: all bits of exponent and mantissa are 1, and it is NaN.

**Return** a dict of four floats:

- `"largest"`: the largest finite number
- `"smallest_normal"`: the smallest positive normal number
- `"smallest_subnormal"`: the smallest positive number of all
- `"epsilon"`: the distance from 1 to the next larger number

**Example**: a format of 5 bits, E = 2 and M = 2, so b = 1. Its positive numbers are

| exponent field | m = 0 | m = 1 | m = 2 | m = 3 |
|---|---|---|---|---|
| 0 | 0 | 0.25 | 0.5 | 0.75 |
| 1 | 1 | 1.25 | 1.5 | 1.75 |
| 2 | 2 | 2.5 | 3 | 3.5 |
| 3 | infinity | NaN | NaN | NaN |

The result is `{"largest": 3.5, "smallest_normal": 1.0, "smallest_subnormal": 0.25, "epsilon": 0.25}`.
Without infinity the last row is 4, 5, 6, NaN, and the largest number 6.

**Rule**: no communication. Python's floats hold all four numbers exactly, and they are compared exactly.
"""


def format_limits(exponent_bits: int, mantissa_bits: int, *, has_infinity: bool = True) -> dict[str, float]:
    """Return largest, smallest_normal, smallest_subnormal and epsilon."""
    raise NotImplementedError(
        "ch07.format_limits: work out the four numbers from the two numbers of bits"
    )
