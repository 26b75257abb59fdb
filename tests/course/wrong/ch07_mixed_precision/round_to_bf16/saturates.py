# expect: DTL-VALUE-OVERFLOW
# says: beyond the largest bfloat16 number is infinity

import torch


def round_to_bf16(x):
    bits = x.view(torch.int32)
    last_kept = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last_kept) & -0x10000
    largest = torch.tensor(0x7F7F0000, dtype=torch.int32).view(torch.float32)
    number = rounded.view(torch.float32).clamp(-largest, largest)
    return torch.where(x.isfinite(), number, x)
