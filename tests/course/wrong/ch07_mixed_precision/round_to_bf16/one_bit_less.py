# expect: DTL-VALUE-KEPT-BITS
# says: rounded to 6 bits of mantissa

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 17) & 1
    rounded = (bits + 0xFFFF + last_kept) & -0x20000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
