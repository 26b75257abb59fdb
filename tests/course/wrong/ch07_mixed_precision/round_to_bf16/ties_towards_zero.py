# expect: DTL-VALUE-TIES
# says: always go towards zero

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    rounded = (bits + 0x7FFF) & -0x10000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
