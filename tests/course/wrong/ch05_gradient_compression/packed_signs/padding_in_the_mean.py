# expect: DTL-MISTAKE
# says: divide by the number of its elements

import torch
from torch.nn import functional


def packed_signs(chunk):
    def pack(x):
        signs = functional.pad((x >= 0).long(), (0, -len(x) % 8)).view(-1, 8)
        bits = (signs << torch.arange(8)).sum(1).to(torch.uint8)
        return bits, functional.pad(x.abs(), (0, -len(x) % chunk)).view(-1, chunk).mean(1)

    def unpack(bits, scales, n):
        ones = (bits[:, None] >> torch.arange(8)) & 1
        return (2.0 * ones.flatten()[:n] - 1) * scales.repeat_interleave(chunk)[:n]

    return pack, unpack
