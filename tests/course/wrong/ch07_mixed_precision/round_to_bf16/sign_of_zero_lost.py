# expect: DTL-VALUE-MINUS-ZERO
# says: a zero lost its sign

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last_kept) & -0x10000
    return torch.where(x.isnan(), x, rounded.view(torch.float32) + 0.0)
