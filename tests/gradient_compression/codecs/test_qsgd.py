"""QSGD is right on average, its variance is below the bound of the paper's lemma, and its codes are that wide."""

import math

import pytest
import torch

from dtlearn.gradient_compression.codecs import qsgd
from dtlearn.gradient_compression.codecs.qsgd import QSGD
from tests.gradient_compression.codecs.test_codec import normal

DRAWS = 4000
CASES = [(1, 8), (1, 64), (3, 16), (7, 64), (127, 64)]


def decoded(codec, x):
    """(DRAWS, n): the same x again and again, one chunk after the other, each with draws of its own."""
    many = x.repeat(DRAWS)
    payload = codec.encode(many, generator=torch.Generator().manual_seed(0))
    return codec.decode(payload, len(many)).view(DRAWS, -1)


def bias_in_errors(codec, x):
    """How far the mean is from x, in standard errors of that mean, at most."""
    ys = decoded(codec, x).double()
    return ((ys.mean(0) - x).abs() / (ys.std(0) / math.sqrt(DRAWS)).clamp(min=1e-12)).max().item()


@pytest.mark.parametrize(("levels", "chunk"), CASES)
def test_it_is_unbiased(levels, chunk):
    assert QSGD.unbiased
    assert bias_in_errors(QSGD(levels, chunk), normal(chunk)) < 4.5  # of 64 elements 1 in 2,000 runs reaches it


@pytest.mark.parametrize(("levels", "chunk"), CASES)
def test_rounding_to_the_nearest_would_be_biased(levels, chunk, monkeypatch):
    monkeypatch.setattr(qsgd.torch, "rand", lambda shape, **options: torch.full(shape, 0.5))
    x = normal(chunk)
    assert (decoded(QSGD(levels, chunk), x).mean(0) - x).abs().max() > 1e-4 * x.norm()


@pytest.mark.parametrize(("levels", "chunk"), CASES)
def test_the_variance_is_below_the_bound(levels, chunk):
    x = normal(chunk)
    variance = (decoded(QSGD(levels, chunk), x) - x).square().sum(1).mean() / x.square().sum()
    bound = min(chunk / levels**2, math.sqrt(chunk) / levels)
    assert bound / 20 < variance < bound
    assert QSGD(levels, chunk).contracts == (bound < 1)


def test_every_value_is_a_level_of_the_norm():
    x = normal(64)
    levels = QSGD(7, 64).decode(QSGD(7, 64).encode(x), 64) / x.norm() * 7
    assert torch.allclose(levels, levels.round(), atol=1e-5) and levels.abs().max() <= 7
    assert (levels.round() * x >= 0).all()


@pytest.mark.parametrize(("levels", "width"), [(1, 2), (2, 4), (7, 4), (8, 8), (127, 8)])
def test_a_code_is_as_wide_as_it_has_to_be(levels, width):
    assert QSGD(levels).width == width
    assert QSGD(levels, 64).nbytes(6400) == 6400 * width // 8 + 4 * 100


@pytest.mark.parametrize(("levels", "chunk"), [(0, 64), (128, 64), (7, 0), (7, 12)])
def test_what_cannot_be_is_refused(levels, chunk):
    with pytest.raises(ValueError, match=r"QSGD has 1 to 127 levels|a chunk of QSGD has a multiple of 8 elements"):
        QSGD(levels, chunk)
