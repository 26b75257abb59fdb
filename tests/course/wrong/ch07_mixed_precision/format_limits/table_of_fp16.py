# expect: DTL-VALUE-ARGUMENT-IGNORED
# says: the limits of FP16 whatever the arguments are

import torch


def format_limits(exponent_bits, mantissa_bits, *, has_infinity=True):
    info = torch.finfo(torch.float16)
    return {
        "largest": info.max,
        "smallest_normal": info.tiny,
        "smallest_subnormal": 2.0**-24,
        "epsilon": info.eps,
    }
