# expect: DTL-VALUE
# says: elements of the result['unpacked'] are wrong

import torch
from torch.nn import functional


def packed_signs(chunk):
    def pack(x):
        signs = functional.pad((x >= 0).long(), (0, -len(x) % 8)).view(-1, 8)
        bits = (signs << torch.arange(8)).sum(1).to(torch.uint8)
        packed_signs.scales = [part.abs().mean() for part in x.split(chunk)] if len(x) else []
        return bits, torch.tensor(packed_signs.scales)

    def unpack(bits, scales, n):
        ones = (bits[:, None] >> torch.arange(8)) & 1
        of_each = torch.tensor(packed_signs.scales).repeat_interleave(chunk)[:n]
        return (2.0 * ones.flatten()[:n] - 1) * of_each

    return pack, unpack
