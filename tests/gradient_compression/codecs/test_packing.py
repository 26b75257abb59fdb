"""Codes of 1, 2, 4 and 8 bits come out of the bytes as they went in, and lie where the text says."""

import pytest
import torch

from dtlearn.gradient_compression.codecs.packing import WIDTHS, pack_bits, pack_codes, unpack_bits, unpack_codes


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("numel", [0, 1, 7, 8, 9, 1000])
def test_what_was_packed_comes_out_again(width, numel):
    codes = torch.randint(2**width, (numel,), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    packed = pack_codes(codes, width)
    assert packed.dtype == torch.uint8 and len(packed) == -(-numel * width // 8)
    assert torch.equal(unpack_codes(packed, width, numel), codes)


def test_every_byte_of_bits():
    numbers = torch.arange(256, dtype=torch.uint8)
    bits = unpack_bits(numbers, 8 * 256)
    assert bits.dtype == torch.bool and torch.equal(pack_bits(bits), numbers)


def test_the_first_code_is_in_the_lowest_bits():
    assert pack_bits(torch.tensor([True, False, False, True, False, False, False, False, True])).tolist() == [9, 1]
    assert pack_codes(torch.tensor([1, 2, 3], dtype=torch.uint8), 4).tolist() == [0x21, 0x03]


def test_another_width_is_refused():
    with pytest.raises(ValueError, match="codes are 1, 2, 4 or 8 bits wide; got 3"):
        pack_codes(torch.zeros(8, dtype=torch.uint8), 3)
