# expect: DTL-MISTAKE
# says: largest has no mantissa


def format_limits(exponent_bits, mantissa_bits, *, has_infinity=True):
    bias = 2 ** (exponent_bits - 1) - 1
    epsilon = 2.0**-mantissa_bits
    last_exponent = bias if has_infinity else bias + 1
    largest = (1 if has_infinity else 2 - 2 * epsilon) * 2.0**last_exponent
    smallest_normal = 2.0 ** (1 - bias)
    return {
        "largest": largest,
        "smallest_normal": smallest_normal,
        "smallest_subnormal": smallest_normal * epsilon,
        "epsilon": epsilon,
    }
