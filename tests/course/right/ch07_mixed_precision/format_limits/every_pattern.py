"""Decodes the patterns themselves: those around the limits, with fractions instead of floats."""

from fractions import Fraction


def format_limits(exponent_bits: int, mantissa_bits: int, *, has_infinity: bool = True) -> dict[str, float]:
    bias, steps = (1 << exponent_bits - 1) - 1, 1 << mantissa_bits

    def decode(pattern: int) -> Fraction:
        e, m = divmod(pattern, steps)
        return Fraction(2) ** (max(e, 1) - bias) * (Fraction(m, steps) + (e > 0))

    infinity = ((1 << exponent_bits) - 1) * steps
    last = infinity - 1 if has_infinity else infinity + steps - 2
    one = bias * steps
    limits = {
        "epsilon": decode(one + 1) - decode(one),
        "smallest_subnormal": decode(1),
        "smallest_normal": decode(steps),
        "largest": decode(last),
    }
    return {name: float(value) for name, value in limits.items()}
