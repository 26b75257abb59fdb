# expect: DTL-RAISED
# says: this is no numbers at all

import torch


def rounded(number):
    bits = number.view(torch.int32)
    return torch.where(number.isnan(), number, ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).view(torch.float32))


def round_to_bf16(x):
    return torch.stack([rounded(number) for number in x.flatten()]).reshape(x.shape)
