# expect: DTL-VALUE-TIES
# says: they go to the odd neighbour

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + 1 - last_kept) & -0x10000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
