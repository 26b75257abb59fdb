# expect: DTL-MISTAKE
# says: the bit of 0 is 0

import torch
from torch.nn import functional


def packed_signs(chunk):
    def pack(x):
        signs = functional.pad(((x.sign() + 1) / 2).long(), (0, -len(x) % 8)).view(-1, 8)
        bits = (signs << torch.arange(8)).sum(1).to(torch.uint8)
        scales = [part.abs().mean() for part in x.split(chunk)] if len(x) else []
        return bits, torch.tensor(scales)

    def unpack(bits, scales, n):
        ones = (bits[:, None] >> torch.arange(8)) & 1
        return (2.0 * ones.flatten()[:n] - 1) * scales.repeat_interleave(chunk)[:n]

    return pack, unpack
