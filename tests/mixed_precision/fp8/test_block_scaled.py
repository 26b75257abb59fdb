"""Blocks of 32 with a scale each, beside the specification's rule written down again with plain numbers."""

import math

import pytest
import torch

from dtlearn.mixed_precision.formats import FP8_E4M3, FP8_E5M2, FP16, TF32
from dtlearn.mixed_precision.fp8 import block_scaled
from dtlearn.mixed_precision.fp8.block_scaled import BLOCK, quantize_blocks
from dtlearn.mixed_precision.fp8.scaling import local_amax, quantize, scale_for

FORMATS = [FP8_E4M3, FP8_E5M2]
LARGEST_POWER = {FP8_E4M3: 8, FP8_E5M2: 15}  # 256 and 32,768


def by_hand(block, fmt):
    """Section 6.3: the exponent of the scale, and the elements, of a list of numbers."""
    amax = max(map(abs, block))
    exponent = math.frexp(amax)[1] - 1 - LARGEST_POWER[fmt] if amax else -127
    exponent = max(exponent, -127)
    clipped = [max(-fmt.largest, min(fmt.largest, value / 2.0**exponent)) for value in block]
    return exponent, [fmt.round(value) for value in clipped]


def agrees_with_the_specification(fmt):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, 2 * BLOCK, generator=g)
    x *= torch.randint(-140, 120, (50, 3, 1), generator=g).double().exp2().float()  # subnormal blocks among them
    x[0, 0], x[1, 0, :BLOCK] = 0, -0.0
    result = quantize_blocks(x, fmt)
    assert result.elements.shape == x.shape and result.elements.dtype == fmt.dtype
    assert result.scales.shape == (50, 3, 2) and result.scales.dtype == torch.float8_e8m0fnu
    blocks = zip(x.view(-1, BLOCK), result.elements.view(-1, BLOCK), result.scales.flatten(), strict=True)
    for block, elements, scale in blocks:
        exponent, numbers = by_hand(block.double().tolist(), fmt)
        if scale.float().item() != 2.0**exponent or elements.double().tolist() != numbers:
            return False
    return True


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_scales_and_elements_are_the_specifications(fmt):
    assert agrees_with_the_specification(fmt)


def test_a_scale_from_another_rule_is_noticed(monkeypatch):
    monkeypatch.setattr(block_scaled.torch.Tensor, "floor", lambda x: x.ceil())
    assert not agrees_with_the_specification(FP8_E4M3)


def test_thirty_three_bytes_for_thirty_two_numbers():
    assert quantize_blocks(torch.randn(5, 7, 96)).nbytes == 5 * 7 * 3 * 33


def test_the_largest_of_a_block_can_lose_an_eighth():
    x = torch.ones(BLOCK)
    x[0] = 511 / 256
    y = quantize_blocks(x).dequantize()
    assert y[0] == 448 / 256 and (y[1:] == 1).all()
    assert 0.12 < 1 - y[0] / x[0] < 0.125
    assert quantize_blocks(x, FP8_E5M2).dequantize()[0] == 1.75  # e5m2 ends at 1.75 * 2^15


def test_a_scale_that_is_rounded_up_clips_nothing_and_has_a_smaller_error():
    x = torch.randn(1024, BLOCK, generator=torch.Generator().manual_seed(0))
    x[0], x[1], x[2] = 448 / 256, torch.tensor(448.0).nextafter(torch.tensor(449.0)) / 256, 0
    down, up = quantize_blocks(x), quantize_blocks(x, round_up=True)
    assert up.scales.float()[:3].flatten().tolist() == [2.0**-8, 2.0**-7, 2.0**-127]
    assert (up.scales.float().log2() - down.scales.float().log2()).unique().tolist() == [0, 1]
    assert (x.abs() <= 448 * up.scales.float()).all() and not (x.abs() <= 448 * down.scales.float()).all()
    errors = [((blocks.dequantize() - x).norm() / x.norm()).item() for blocks in (down, up)]
    assert errors[1] < 0.0275 < 0.029 < errors[0]
    assert quantize_blocks(torch.full((1, BLOCK), torch.inf), round_up=True).dequantize().isnan().all()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_what_the_blocks_hold_comes_back(fmt):
    steps = torch.randint(-7, 8, (20, BLOCK), generator=torch.Generator().manual_seed(0)).float()
    x = steps.clamp(-3, 3) * torch.arange(-10, 10).exp2()[:, None]
    assert quantize_blocks(x, fmt).dequantize().equal(x)


def test_an_outlier_costs_its_block_and_no_other():
    torch.manual_seed(0)
    x = torch.randn(64, 256) * 1e-3
    x[0, 0] = 1000.0
    one_scale = quantize(x, scale_for(local_amax(x), FP8_E4M3), FP8_E4M3).dequantize()
    blocks = quantize_blocks(x).dequantize()
    others = torch.ones_like(x, dtype=torch.bool)
    others[0, :BLOCK] = False
    relative = [((y - x).abs() / x.abs())[others] for y in (one_scale, blocks)]
    assert (one_scale[others] == 0).float().mean() > 0.3  # below half of the smallest subnormal
    assert (blocks[others] == 0).sum() == 0 and relative[1].median() < 0.03 < relative[0].median()


def test_numbers_that_are_not_finite_make_nan_of_their_block():
    x = torch.ones(4, BLOCK)
    x[0, 3], x[1, 3], x[2, 3] = torch.nan, torch.inf, -torch.inf
    result = quantize_blocks(x)
    assert result.scales.view(torch.uint8).flatten().tolist() == [255, 255, 255, 119]
    assert result.dequantize().isnan().all(1).tolist() == [True, True, True, False]


@pytest.mark.parametrize("shape", [(), (31,), (2, 33), (32, 1)])
def test_a_shape_that_has_no_blocks_is_refused(shape):
    with pytest.raises(ValueError, match=r"blocks have 32 elements, which must divide.*pad it with zeros"):
        quantize_blocks(torch.ones(shape))


def test_other_formats_and_integers_are_refused():
    with pytest.raises(ValueError, match="torch has no tensors of tf32"):
        quantize_blocks(torch.ones(BLOCK), TF32)
    with pytest.raises(ValueError, match="an 8-bit format"):
        quantize_blocks(torch.ones(BLOCK), FP16)
    with pytest.raises(ValueError, match="floating-point"):
        quantize_blocks(torch.ones(BLOCK, dtype=torch.int64))
