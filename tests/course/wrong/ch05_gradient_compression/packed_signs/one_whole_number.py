# expect: DTL-DIFFICULTY
# says: n may be any number, here 100

import torch


def packed_signs(chunk):
    def pack(x):
        number = ((x >= 0).long() << torch.arange(len(x))).sum()  # int64: there is room for 63 elements
        bits = [number >> 8 * j & 255 for j in range(-(-len(x) // 8))]
        scales = [part.abs().mean() for part in x.split(chunk)] if len(x) else []
        return torch.tensor(bits, dtype=torch.uint8), torch.tensor(scales)

    def unpack(bits, scales, n):
        ones = (bits[:, None] >> torch.arange(8)) & 1
        return (2.0 * ones.flatten()[:n] - 1) * scales.repeat_interleave(chunk)[:n]

    return pack, unpack
