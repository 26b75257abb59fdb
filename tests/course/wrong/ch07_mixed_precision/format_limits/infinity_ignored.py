# expect: DTL-VALUE-INFINITY
# says: has_infinity=False is ignored


def format_limits(exponent_bits, mantissa_bits, *, has_infinity=True):
    bias = 2 ** (exponent_bits - 1) - 1
    epsilon = 2.0**-mantissa_bits
    largest = (2 - epsilon) * 2.0**bias
    smallest_normal = 2.0 ** (1 - bias)
    return {
        "largest": largest,
        "smallest_normal": smallest_normal,
        "smallest_subnormal": smallest_normal * epsilon,
        "epsilon": epsilon,
    }
