# expect: DTL-VALUE-CONVERTED
# says: `x.view(torch.int32)` has the same bits

import torch


def round_to_bf16(x):
    bits = x.to(torch.int32)
    last_kept = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last_kept) & -0x10000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
