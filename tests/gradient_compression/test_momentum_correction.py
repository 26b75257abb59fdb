"""Deep gradient compression: the algorithm of the paper, step by step, and a warm-up that begins mildly."""

import pytest
import torch
from torch import nn

from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.error_feedback import ErrorFeedback
from dtlearn.gradient_compression.momentum_correction import MomentumCorrection, clipped, warm_up_sparsity
from tests.gradient_compression.codecs.test_codec import normal


def by_hand(gradients, k, momentum, masks=True, corrects=True):
    """What is sent in each step, one element after the other, as section 3.2 of the paper has it."""
    u, v = [0.0] * 40, [0.0] * 40
    for gradient in gradients:
        for i, g in enumerate(gradient.tolist()):
            u[i] = momentum * u[i] + g
            v[i] += u[i] if corrects else g
        sent = [0.0] * 40
        for i in sorted(range(40), key=lambda i: -abs(v[i]))[:k]:
            sent[i], v[i] = v[i], 0.0
            if masks:
                u[i] = 0.0
        yield torch.tensor(sent)


def sent_by(codec, gradients):
    weight = nn.Parameter(torch.zeros(40))
    return [codec.codec.decode(codec.encode(g, [weight]), 40) for g in gradients]


def distance(mine, theirs):
    return max((a - b).abs().max().item() for a, b in zip(mine, theirs, strict=True))


GRADIENTS = [normal(40, step) for step in range(12)]


def test_it_is_the_algorithm_of_the_paper():
    mine = sent_by(MomentumCorrection(TopK(k=4), momentum=0.9), GRADIENTS)
    assert distance(mine, by_hand(GRADIENTS, 4, 0.9)) < 1e-5
    assert distance(mine, by_hand(GRADIENTS, 4, 0.9, masks=False)) > 0.1
    assert distance(mine, by_hand(GRADIENTS, 4, 0.9, corrects=False)) > 0.1


def test_without_momentum_it_is_error_feedback():
    mine, theirs = (
        sent_by(f, GRADIENTS) for f in (MomentumCorrection(TopK(k=4), momentum=0), ErrorFeedback(TopK(k=4)))
    )
    assert distance(mine, theirs) == 0


def test_a_codec_that_sends_everything_leaves_no_momentum():
    assert distance(sent_by(MomentumCorrection(TopK(ratio=1.0)), GRADIENTS), GRADIENTS) == 0


def test_an_element_that_waits_gathers_momentum():
    """Constant gradients of 1, sent in step 3: sums of the velocities 1, 1.9, 2.71."""
    weight, codec = nn.Parameter(torch.zeros(2)), MomentumCorrection(TopK(k=1), momentum=0.9)
    sent = [codec.codec.decode(codec.encode(torch.tensor([1.0, g]), [weight]), 2) for g in (100.0, 50.0, 0.0)]
    assert [one[0].item() for one in sent] == [0, 0, pytest.approx(1 + 1.9 + 2.71)]


def test_each_parameters_gradient_is_clipped_before_all_else():
    gradient = torch.tensor([3.0, 4.0, 0.3, 0.4, 0.0])
    assert clipped(gradient, [2, 2, 1, 0], 1.0).tolist() == pytest.approx([0.6, 0.8, 0.3, 0.4, 0.0])
    weight, bias = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))
    codec = MomentumCorrection(TopK(ratio=1.0), max_norm=1.0)
    assert codec.codec.decode(codec.encode(gradient, [weight, bias]), 5).tolist() == pytest.approx(
        [0.6, 0.8, 0.3, 0.4, 0]
    )


@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_gradient_leaves_no_trace(broken, max_norm):
    weight, codec = nn.Parameter(torch.zeros(40)), MomentumCorrection(TopK(k=4), max_norm=max_norm)
    codec.encode(normal(40), [weight])
    before = [kept.parts[weight].clone() for kept in (codec.residuals, codec.velocities)]
    gradient = normal(40, 1)
    gradient[3] = broken
    assert not codec.codec.decode(codec.encode(gradient, [weight]), 40).isfinite().all()
    assert all(map(torch.equal, before, [kept.parts[weight] for kept in (codec.residuals, codec.velocities)]))


def test_its_state_goes_on_and_another_is_refused():
    model, other = nn.Linear(8, 5, bias=False), nn.Linear(8, 5, bias=False)
    first, second = MomentumCorrection(TopK(k=3)), MomentumCorrection(TopK(k=3))
    first.encode(normal(40), [model.weight])
    second.load_state_dict(first.state_dict(model), other)
    payloads = [codec.encode(normal(40, 1), [m.weight]) for codec, m in ((first, model), (second, other))]
    assert all(map(torch.equal, *payloads))
    with pytest.raises(ValueError, match="saved without momentum correction"):
        second.load_state_dict(ErrorFeedback(TopK(k=3)).state_dict(model), other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MomentumCorrection(PackedSign()), r"sends few elements, TopK or RandomK; got PackedSign"),
        (lambda: MomentumCorrection(TopK(k=1), momentum=1.0), "0 or more, and less than 1; got 1.0"),
        (lambda: MomentumCorrection(TopK(k=1), max_norm=0.0), "more than 0, or None for no limit; got 0.0"),
        (lambda: warm_up_sparsity(0.0, stages=4, steps_per_stage=10), "got 0.0, 4 and 10"),
        (lambda: warm_up_sparsity(0.1, stages=0, steps_per_stage=10), "got 0.1, 0 and 10"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_warm_up_is_that_of_the_paper():
    codec_at = warm_up_sparsity(0.001, stages=4, steps_per_stage=10)
    ratios = [codec_at(step).ratio for step in (0, 9, 10, 20, 30, 40, 1000)]
    assert ratios == pytest.approx([0.25, 0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001], rel=0.05)
