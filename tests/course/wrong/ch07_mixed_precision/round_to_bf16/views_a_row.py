# expect: DTL-RAISED
# says: x may have any shape, and strides: this is a transposed matrix

import torch


def round_to_bf16(x):
    row = x.view(-1)
    bits = row.view(torch.int32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000).view(torch.float32)
    return torch.where(row.isnan(), row, rounded).view(x.shape)
