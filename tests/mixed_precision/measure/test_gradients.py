"""Gradients of a real model, counted: the counts are right, whatever the gradients are."""

import math

import pytest
import torch
from torch import nn

from dtlearn.mixed_precision.formats import BF16, FP8_E4M3, FP16
from dtlearn.mixed_precision.measure.gradients import collect_gradients, gpt_gradients, log2_histogram, shares_in
from dtlearn.models import GPTConfig

SMALL = GPTConfig(context_length=16, num_layers=1, num_heads=2, hidden_size=16)


def test_numbers_are_counted_by_their_exponents():
    x = torch.tensor([1.0, -1.5, 1.999, 2.0, 0.25, -0.0, 0.0, 1e-45])
    histogram = log2_histogram(x)
    counts = {e: n for e, n in zip(histogram.exponents, histogram.counts, strict=True) if n}
    assert counts == {0: 3, 1: 1, -2: 1, -149: 1} and histogram.zeros == 2 and histogram.total == len(x)


def test_every_number_is_in_its_place():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-5
    histogram = log2_histogram(x.view(10, 100))
    expected = [math.floor(math.log2(abs(v))) for v in x.double().tolist()]
    assert [expected.count(e) for e in histogram.exponents] == list(histogram.counts) and histogram.zeros == 0


def test_a_loss_scale_shifts_the_histogram():
    x = torch.randn(100)
    assert log2_histogram(x * 1024) == log2_histogram(x).shifted(10)


def test_zeros_alone_and_nothing_have_a_histogram_too():
    assert log2_histogram(torch.zeros(3)).total == 3 and log2_histogram(torch.empty(0)).total == 0
    for value in (torch.inf, torch.nan):
        with pytest.raises(ValueError, match="infinities or NaN"):
            log2_histogram(torch.tensor([1.0, value]))


def test_shares_of_what_a_format_makes_of_numbers():
    x = torch.tensor([2.0**-25, 2.0**-24, 2.0**-15, 1.0, 65519.0, 65520.0, -1e9, 0.0])
    assert shares_in(x, FP16) == (1 / 7, 2 / 7, 2 / 7, 2 / 7)
    assert shares_in(x[:3], FP16, scale=2.0**10) == (0, 1 / 3, 2 / 3, 0)  # 2^-15; 2^-14, 2^-5
    assert shares_in(x, BF16) == (0, 0, 1, 0)
    assert shares_in(torch.tensor([500.0]), FP8_E4M3) == (0, 0, 0, 1)


@pytest.mark.parametrize("numbers", [[0.0], [1.0, torch.nan]])
def test_shares_of_nothing_are_refused(numbers):
    with pytest.raises(ValueError, match="finite numbers that are not 0"):
        shares_in(torch.tensor(numbers), FP16)


def test_both_kinds_of_gradients_are_those_of_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    gradients = collect_gradients(model, lambda: model(x).square().mean())
    hidden = model[0](x)
    y = model[2](hidden.tanh())
    at_hidden, at_y, weight = torch.autograd.grad(y.square().mean(), [hidden, y, model[0].weight])
    assert list(gradients.activations) == ["0", "2"] and len(gradients.weights) == 4
    assert gradients.activations["0"].equal(at_hidden) and gradients.activations["2"].equal(at_y)
    assert gradients.weights["0.weight"].equal(weight)
    assert not any(layer._forward_hooks for layer in model)


def test_more_microbatches_make_smaller_gradients():
    whole, part = (gpt_gradients(SMALL, trained_steps=2, batch_size=4, num_microbatches=n) for n in (1, 64))
    for one, other in ((whole.activations, part.activations), (whole.weights, part.weights)):
        assert one.keys() == other.keys()
        for name in one:
            assert log2_histogram(other[name]) == log2_histogram(one[name]).shifted(-6), name
    scores = whole.activations["blocks.0.attention.query"]
    assert scores.shape == (4, 16, 16)


def test_small_gradients_are_lost_first_where_the_softmax_is():
    gradients = gpt_gradients(SMALL, trained_steps=2, batch_size=4, num_microbatches=1024).activations
    query, down = gradients["blocks.0.attention.query"], gradients["blocks.0.feed_forward.down"]
    assert shares_in(query, FP16).zero > 0.9 > 0.5 > shares_in(down, FP16).zero
    scaled = shares_in(query, FP16, 65536.0)
    assert scaled.zero < 0.05 and scaled.overflow == 0
    assert shares_in(query, BF16).zero == 0
