# expect: DTL-VALUE-TRUNCATED
# says: that rounds towards zero

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    rounded = bits & -0x10000
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
