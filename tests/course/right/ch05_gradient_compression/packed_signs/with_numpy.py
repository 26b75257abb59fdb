import numpy
import torch


class Packer:
    def __init__(self, chunk):
        self.chunk = chunk

    def pack(self, x):
        numbers = x.numpy()
        bits = numpy.packbits(~(numbers < 0), bitorder="little")
        starts = range(0, len(numbers), self.chunk)
        scales = [numpy.abs(numbers[at : at + self.chunk]).mean() for at in starts]
        return torch.from_numpy(bits), torch.tensor(scales, dtype=torch.float32)

    def unpack(self, bits, scales, n):
        ones = torch.from_numpy(numpy.unpackbits(bits.numpy(), count=n, bitorder="little")).bool()
        of_each = scales[torch.arange(n) // self.chunk]
        return torch.where(ones, of_each, -of_each)


def packed_signs(chunk):
    packer = Packer(chunk)
    return packer.pack, packer.unpack
