# expect: DTL-VALUE-DTYPE
# says: `.view(torch.float32)` reads them as float32

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last_kept) & -0x10000
    return rounded
