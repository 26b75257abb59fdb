"""Packed signs: one bit each, a scale that makes a contraction, and + for zero."""

import pytest
import torch

from dtlearn.gradient_compression.codecs.sign import PackedSign
from tests.gradient_compression.codecs.test_codec import normal


def decoded(codec, x):
    return codec.decode(codec.encode(x), len(x))


def test_signs_and_the_mean_of_each_chunk():
    x = torch.tensor([1.0, -2.0, 3.0, 0.0, -1.0, 1.0, -1.0, -1.0, 5.0, -7.0])
    assert decoded(PackedSign(8), x).tolist() == [1.25, -1.25, 1.25, 1.25, -1.25, 1.25, -1.25, -1.25, 6.0, -6.0]


@pytest.mark.parametrize("chunk", [8, 1000, 1024])
def test_it_is_the_contraction_of_the_paper(chunk):
    """Not bounded only: ||C(x) - x||^2 = ||x||^2 - ||x||_1^2 / d in each chunk."""
    x = normal(1000).exp() * normal(1000, 1)
    error = (decoded(PackedSign(chunk), x) - x).square()
    for left, part in zip(error.split(chunk), x.split(chunk), strict=True):
        size, whole = len(part), part.square().sum()
        assert left.sum().item() == pytest.approx((whole - part.abs().sum() ** 2 / size).item(), rel=1e-4)
        assert left.sum() <= (1 - 1 / size) * whole


def test_without_the_scale_it_would_be_none():
    x = 0.01 * normal(1000)
    assert (decoded(PackedSign(), x) - x).norm() < x.norm() < (x.sign() - x).norm() / 10


def test_it_takes_a_32nd_and_the_scales():
    numel = 1 << 20
    nbytes = PackedSign().nbytes(numel)
    assert nbytes == numel * 4 // 32 + 4 * numel // 1024 and nbytes < 1.04 * numel * 4 / 32


@pytest.mark.parametrize("chunk", [0, 4, 12])
def test_another_chunk_is_refused(chunk):
    with pytest.raises(ValueError, match=f"a chunk of PackedSign has a multiple of 8 elements; got {chunk}"):
        PackedSign(chunk)
