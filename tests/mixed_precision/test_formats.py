"""What follows from the bits of a format, beside what torch says of it."""

import math
import random

import pytest
import torch

from dtlearn.mixed_precision import formats
from dtlearn.mixed_precision.formats import (
    BF16,
    FORMATS,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    FP32,
    TF32,
    Bits,
    find_format,
    torch_dtype,
)

IN_TORCH = [fmt for fmt in FORMATS.values() if fmt.dtype]
INTEGERS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}


def by_torch(values, fmt):
    """The patterns that torch's cast gives."""
    bits = torch.tensor(values, dtype=torch.float32).to(fmt.dtype).view(INTEGERS[fmt.width])
    return [pattern % 2**fmt.width for pattern in bits.tolist()]


@pytest.mark.parametrize("fmt", IN_TORCH, ids=lambda fmt: fmt.name)
def test_every_figure_is_that_of_torch(fmt):
    info = torch.finfo(fmt.dtype)
    assert (fmt.width, fmt.largest, fmt.smallest_normal, fmt.epsilon) == (
        info.bits,
        info.max,
        info.smallest_normal,
        info.eps,
    )
    assert fmt.smallest_subnormal == torch.tensor(1, dtype=INTEGERS[fmt.width]).view(fmt.dtype).item()


def test_figures_as_papers_print_them():
    assert (FP16.largest, FP16.smallest_normal, FP16.smallest_subnormal) == (65504, 2**-14, 2**-24)
    assert (FP8_E4M3.largest, FP8_E4M3.smallest_normal, FP8_E4M3.smallest_subnormal) == (448, 2**-6, 2**-9)
    assert (FP8_E5M2.largest, FP8_E5M2.smallest_normal, FP8_E5M2.smallest_subnormal) == (57344, 2**-14, 2**-16)
    assert (FP8_E4M3.bias, FP8_E5M2.bias, FP16.bias, BF16.bias, FP32.bias) == (7, 15, 15, 127, 127)
    assert TF32.width == 19 and TF32.epsilon == FP16.epsilon and TF32.smallest_normal == FP32.smallest_normal


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.width <= 19], ids=lambda fmt: fmt.name)
def test_every_pattern_is_found_again(fmt):
    for pattern in range(0, 2**fmt.width, 1 if fmt.width <= 16 else 23):
        value = fmt.decode(pattern)
        if math.isnan(value):
            assert math.isnan(fmt.round(value))
        else:
            assert fmt.encode(value) == pattern
    assert fmt.decode(fmt.bits(fmt.largest)) == fmt.largest


@pytest.mark.parametrize("fmt", [f for f in IN_TORCH if f.width <= 16], ids=lambda fmt: fmt.name)
def test_every_pattern_means_what_it_means_in_torch(fmt):
    patterns = torch.arange(2**fmt.width).to(INTEGERS[fmt.width])
    expected = patterns.view(fmt.dtype).double().tolist()
    decoded = [fmt.decode(pattern) for pattern in range(2**fmt.width)]
    assert list(map(repr, decoded)) == list(map(repr, expected))  # tells -0.0 from 0.0


@pytest.mark.parametrize("fmt", IN_TORCH, ids=lambda fmt: fmt.name)
def test_numbers_are_encoded_as_torch_casts_them(fmt):
    draw = random.Random(0)
    values = [draw.uniform(-1, 1) * 2.0 ** draw.randint(-150, 127) for _ in range(3000)]
    # Beyond the largest, torch's casts to e4m3 differ from version to version.
    values = [0.0, -0.0, 1.0, *[v for v in values if abs(v) <= fmt.largest or fmt.has_infinity]]
    exact = torch.tensor(values, dtype=torch.float32).double().tolist()
    assert [fmt.encode(value) for value in exact] == by_torch(values, fmt)


def test_ties_go_to_the_even_mantissa_and_overflow_has_its_own_pattern():
    assert [FP16.round(v) for v in (2049, 2051, 65519, 65520)] == [2048, 2052, 65504, math.inf]
    assert FP8_E4M3.round(464) == 448 and math.isnan(FP8_E4M3.round(464.01))
    assert math.isnan(FP8_E4M3.round(math.inf)) and FP8_E5M2.round(-1e9) == -math.inf
    assert FP16.round(2**-25) == 0 and FP16.round(2**-25 * 1.01) == 2**-24


def test_bits_are_texts_to_be_shown():
    assert FP16.bits(-1.5) == Bits("1", "01111", "1000000000")
    assert str(BF16.bits(1.0)) == "0 01111111 0000000"
    assert BF16.decode("0 01111111 0000001") == 1 + BF16.epsilon == BF16.decode(Bits("0", "01111111", "0000001"))
    assert str(FP8_E4M3.bits(math.nan)) == "0 1111 111" and str(FP8_E5M2.bits(math.inf)) == "0 11111 00"


@pytest.mark.parametrize("pattern", ["0 01111 000", "0 01111 000000000x", 2**16])
def test_a_pattern_of_another_width_is_refused(pattern):
    with pytest.raises(ValueError, match="fp16 has 16 bits, each 0 or 1; got"):
        FP16.decode(pattern)


def test_formats_are_found_by_name_and_by_dtype():
    assert all(find_format(name) is fmt for name, fmt in FORMATS.items())
    assert find_format(torch.bfloat16) is BF16 and torch_dtype(FP8_E5M2) is torch.float8_e5m2
    for key in ("fp4", torch.int8, torch.float64):
        with pytest.raises(ValueError, match=r"none of the floating-point formats.*fp16 \(torch.float16\)"):
            find_format(key)


def test_a_format_without_tensors_is_refused_where_they_are_needed():
    with pytest.raises(ValueError, match=r"torch has no tensors of tf32: store the numbers as torch.float32"):
        torch_dtype(TF32)


def test_a_wrong_bias_would_be_noticed(monkeypatch):
    monkeypatch.setattr(formats.Format, "bias", property(lambda self: 2 ** (self.exponent_bits - 1)))
    with pytest.raises(AssertionError):
        test_every_figure_is_that_of_torch(FP16)
