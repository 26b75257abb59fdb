"""Sent + kept = given; without the residual a codec that is no average loses what it leaves out."""

import pytest
import torch
from torch import nn

from dtlearn.gradient_compression.codecs.casts import CastCodec
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import RandomK, TopK
from dtlearn.gradient_compression.error_feedback import ErrorFeedback
from tests.gradient_compression.codecs.test_codec import normal

EXACT = [TopK(ratio=0.1), TopK(k=1), RandomK(ratio=0.1)]  # what is sent is sent as it is
ROUNDED = [PackedSign(8), CastCodec(torch.bfloat16)]


def steps(codec, dtype, num_steps=20):
    """(given, sent, kept) of each step."""
    weight, feedback = nn.Parameter(torch.zeros(40)), ErrorFeedback(codec)
    for step in range(num_steps):
        gradient = normal(40, step).to(dtype)
        before = feedback.residuals.parts.get(weight, torch.zeros(40, dtype=dtype)).clone()
        payload = feedback.encode(gradient, [weight])
        yield gradient + before, codec.decode(payload, 40).to(dtype), feedback.residuals.parts[weight].clone()


@pytest.mark.parametrize("codec", EXACT, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sent_and_kept_is_what_was_given_to_the_last_bit(codec, dtype):
    assert all(torch.equal(sent + kept, given) for given, sent, kept in steps(codec, dtype))


@pytest.mark.parametrize("codec", ROUNDED, ids=str)
def test_with_other_codecs_it_is_so_within_rounding(codec):
    for given, sent, kept in steps(codec, torch.float32):
        assert torch.allclose(sent + kept, given, atol=1e-6) and kept.abs().max() > 0


@pytest.mark.parametrize("codec", [*EXACT, PackedSign(8)], ids=str)
def test_the_residual_of_a_contraction_stays_bounded(codec):
    """||e|| <= 2 sqrt(1 - delta) / delta times the largest gradient: Karimireddy et al., Lemma 3."""
    delta = codec.sent_of(40) / 40 if hasattr(codec, "sent_of") else 1 / 8
    largest = max(normal(40, step).norm() for step in range(200))
    kept = [kept.norm() for _, _, kept in steps(codec, torch.float32, 200)]
    assert max(kept) < 2 * (1 - delta) ** 0.5 / delta * largest
    assert max(kept[100:]) < 2 * max(kept[:100])  # and does not go on growing


def follow(codec, feedback, num_steps=400):
    """The loss after SGD on half the squared distance to a point whose coordinates are of very different size."""
    target = 10.0 ** torch.linspace(-2, 1, 40)
    weight = nn.Parameter(torch.zeros(40))
    memory = ErrorFeedback(codec) if feedback else None
    for _ in range(num_steps):
        gradient = weight.detach() - target
        payload = memory.encode(gradient, [weight]) if memory else codec.encode(gradient)
        with torch.no_grad():
            weight -= 0.02 * codec.decode(payload, 40)
    return (0.5 * (weight.detach() - target).square().sum()).item()


@pytest.mark.parametrize("codec", [TopK(k=2), PackedSign(40)], ids=str)
def test_a_residual_that_is_dropped_trains_worse(codec):
    assert follow(codec, feedback=True) < 0.2 * follow(codec, feedback=False)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize("codec", [*EXACT, *ROUNDED], ids=str)
def test_a_broken_gradient_is_sent_and_leaves_no_trace(codec, broken):
    weight, feedback = nn.Parameter(torch.zeros(40)), ErrorFeedback(codec)
    feedback.encode(normal(40), [weight])
    before = feedback.residuals.parts[weight].clone()
    gradient = normal(40, 1)
    gradient[3] = broken
    assert not codec.decode(feedback.encode(gradient, [weight]), 40).isfinite().all()
    assert torch.equal(feedback.residuals.parts[weight], before)


def test_what_overflows_in_the_codec_is_not_kept_either():
    weight, feedback = nn.Parameter(torch.zeros(2)), ErrorFeedback(CastCodec(torch.float16))
    feedback.encode(torch.tensor([1e5, 1.0]), [weight])
    assert feedback.residuals.parts[weight].tolist() == [0, 0]


def test_the_gradient_is_not_changed():
    gradient = normal(40)
    ErrorFeedback(TopK(k=3)).encode(gradient, [nn.Parameter(torch.zeros(40))])
    assert torch.equal(gradient, normal(40))


def test_its_state_goes_on():
    model, other = nn.Linear(8, 5, bias=False), nn.Linear(8, 5, bias=False)
    first, second = ErrorFeedback(TopK(k=3)), ErrorFeedback(TopK(k=3))
    first.encode(normal(40), [model.weight])
    second.load_state_dict(first.state_dict(model), other)
    payloads = [feedback.encode(normal(40, 1), [m.weight]) for feedback, m in ((first, model), (second, other))]
    assert all(map(torch.equal, *payloads))
    assert not torch.equal(payloads[0][1], ErrorFeedback(TopK(k=3)).encode(normal(40, 1), [model.weight])[1])
