# expect: DTL-VALUE-INFINITY
# says: and so it is where it is left out


def format_limits(exponent_bits, mantissa_bits, *, has_infinity=False):
    bias = 2 ** (exponent_bits - 1) - 1
    eps = 2.0**-mantissa_bits
    largest = (2 - eps) * 2.0**bias if has_infinity else (2 - 2 * eps) * 2.0 ** (bias + 1)
    normal = 2.0 ** (1 - bias)
    return {"largest": largest, "smallest_normal": normal, "smallest_subnormal": normal * eps, "epsilon": eps}
