# expect: DTL-VALUE-SUBNORMAL
# says: subnormal numbers became 0

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last_kept) & -0x10000
    tiny = x.abs() < torch.finfo(torch.float32).tiny
    rounded = torch.where(tiny, bits & -0x80000000, rounded)
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
