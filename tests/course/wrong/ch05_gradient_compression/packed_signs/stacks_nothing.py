# expect: DTL-RAISED
# says: n may be 0

import torch
from torch.nn import functional


def packed_signs(chunk):
    def pack(x):
        signs = functional.pad((x >= 0).long(), (0, -len(x) % 8)).view(-1, 8)
        bits = (signs << torch.arange(8)).sum(1).to(torch.uint8)
        return bits, torch.stack([x[at : at + chunk].abs().mean() for at in range(0, len(x), chunk)])

    def unpack(bits, scales, n):
        ones = (bits[:, None] >> torch.arange(8)) & 1
        return (2.0 * ones.flatten()[:n] - 1) * scales.repeat_interleave(chunk)[:n]

    return pack, unpack
