# expect: DTL-RAISED
# says: n need not be a multiple of 8

import torch


def packed_signs(chunk):
    def pack(x):
        signs = (x >= 0).long().view(-1, 8)
        bits = (signs << torch.arange(8)).sum(1).to(torch.uint8)
        scales = [part.abs().mean() for part in x.split(chunk)] if len(x) else []
        return bits, torch.tensor(scales)

    def unpack(bits, scales, n):
        ones = (bits[:, None] >> torch.arange(8)) & 1
        return (2.0 * ones.flatten()[:n] - 1) * scales.repeat_interleave(chunk)[:n]

    return pack, unpack
