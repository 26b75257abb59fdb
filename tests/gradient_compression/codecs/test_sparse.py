"""Top-k and random-k: which elements, how good as contractions, and right on average where that is said."""

import math

import pytest
import torch

from dtlearn.gradient_compression.codecs.sparse import RandomK, TopK
from tests.gradient_compression.codecs.test_codec import normal


def error_of(codec, x, generator=None):
    return (codec.decode(codec.encode(x, generator=generator), len(x)) - x).square().sum() / x.square().sum()


def test_top_k_sends_the_largest_as_they_are():
    x = torch.tensor([0.5, -3.0, 0.0, 2.0, -1.0])
    codec = TopK(k=2)
    values, indices = codec.encode(x)
    assert dict(zip(indices.tolist(), values.tolist(), strict=True)) == {1: -3.0, 3: 2.0}
    assert indices.dtype == torch.int32
    assert codec.decode((values, indices), 5).tolist() == [0.0, -3.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("ratio", [0.001, 0.1, 0.5, 1.0])
def test_top_k_is_a_contraction(ratio):
    for x in (normal(1000), normal(1000).exp(), torch.ones(1000)):
        assert error_of(TopK(ratio=ratio), x) <= 1 - ratio + 1e-6
    assert error_of(TopK(ratio=ratio), torch.ones(1000)) == pytest.approx(1 - ratio, abs=1e-6)  # the bound is reached


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_random_k_is_one_on_average(ratio):
    x, generator = normal(100), torch.Generator().manual_seed(0)
    errors = torch.stack([error_of(RandomK(ratio=ratio), x, generator) for _ in range(2000)])
    assert errors.mean() == pytest.approx(1 - ratio, abs=4 * errors.std().item() / math.sqrt(2000))
    assert RandomK(ratio=ratio).contracts and not RandomK(ratio=ratio).unbiased


def test_unbiased_random_k_is_right_on_average_but_no_contraction():
    x, generator, codec = normal(50), torch.Generator().manual_seed(0), RandomK(ratio=0.2, unbiased=True)
    ys = torch.stack([codec.decode(codec.encode(x, generator=generator), 50) for _ in range(4000)])
    away = (ys.mean(0) - x).abs() / (ys.std(0) / math.sqrt(4000))
    assert away.max() < 4.5 and codec.unbiased and not codec.contracts
    variance = (ys - x).square().sum(1).mean() / x.square().sum()
    assert variance == pytest.approx(1 / 0.2 - 1, rel=0.05)
    plain = torch.stack([RandomK(ratio=0.2).decode(RandomK(ratio=0.2).encode(x), 50) for _ in range(4000)])
    assert (plain.mean(0) - 0.2 * x).abs().max() < 0.1  # without the factor it is k/n times x


@pytest.mark.parametrize("kind", [TopK, RandomK])
def test_a_k_larger_than_the_bucket_sends_all(kind):
    x = normal(10)
    for codec in (kind(k=10), kind(k=1000), kind(ratio=1.0)):
        assert torch.equal(codec.decode(codec.encode(x), 10), x)
    assert kind(k=1000).nbytes(10) == 80


@pytest.mark.parametrize(("ratio", "numel", "sent"), [(0.01, 1000, 10), (0.01, 1001, 11), (0.01, 1, 1), (0.5, 0, 0)])
def test_a_ratio_is_rounded_up(ratio, numel, sent):
    assert TopK(ratio=ratio).sent_of(numel) == sent


@pytest.mark.parametrize("kind", [TopK, RandomK])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takes a ratio or a k, one of the two; got ratio=None, k=None"),
        ({"ratio": 0.1, "k": 3}, "takes a ratio or a k, one of the two; got ratio=0.1, k=3"),
        ({"ratio": 0.0}, "is more than 0 and at most 1; got 0.0"),
        ({"ratio": 10}, "is more than 0 and at most 1; got 10"),
        ({"k": 0}, "is 1 or more; got 0"),
    ],
)
def test_what_cannot_be_is_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)
