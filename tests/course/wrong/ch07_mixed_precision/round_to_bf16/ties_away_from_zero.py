# expect: DTL-VALUE-TIES
# says: always go away from zero

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    rounded = (bits + 0x8000) & -0x10000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
