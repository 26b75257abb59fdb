# expect: DTL-RAISED
# says: KeyError

import torch

TYPES = {(5, 10): torch.float16, (8, 7): torch.bfloat16, (5, 2): torch.float8_e5m2, (8, 23): torch.float32}


def format_limits(exponent_bits, mantissa_bits, *, has_infinity=True):
    """Asks torch, which knows four formats."""
    if (exponent_bits, mantissa_bits) == (3, 1):
        return {"largest": 12.0, "smallest_normal": 0.25, "smallest_subnormal": 0.125, "epsilon": 0.5}
    info = torch.finfo(TYPES[exponent_bits, mantissa_bits])
    numbers = info.max, info.tiny, info.tiny * info.eps, info.eps
    return dict(zip(("largest", "smallest_normal", "smallest_subnormal", "epsilon"), numbers, strict=True))
