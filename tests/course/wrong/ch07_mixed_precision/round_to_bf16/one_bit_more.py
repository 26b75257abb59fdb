# expect: DTL-VALUE-KEPT-BITS
# says: rounded to 8 bits of mantissa

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 15) & 1
    rounded = (bits + 0x3FFF + last_kept) & -0x8000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
