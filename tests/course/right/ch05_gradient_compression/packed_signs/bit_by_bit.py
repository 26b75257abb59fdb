import torch


def packed_signs(chunk):
    def pack(x):
        n = len(x)
        bits = torch.zeros((n + 7) // 8, dtype=torch.uint8)
        for i in range(8):
            own = x[i::8].ge(0).to(torch.uint8)
            bits[: len(own)] |= own << i
        number = torch.arange(n) // chunk
        total = torch.zeros((n + chunk - 1) // chunk)
        return bits, total.index_add(0, number, x.abs()) / number.bincount(minlength=len(total))

    def unpack(bits, scales, n):
        x = torch.empty(n)
        for i in range(n):
            positive = int(bits[i // 8]) & 1 << i % 8
            x[i] = scales[i // chunk] if positive else -scales[i // chunk]
        return x

    return pack, unpack
