import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.models import train_reference
from dtlearn.pipeline_parallel.asynchronous.delayed import pipedream_delays, train_delayed

from ..runs import PlainSGD
from .small_chain import make_batches, make_stages

LEARNING_RATE = 0.1  # of PlainSGD


def test_no_delay_is_plain_training():
    batches = make_batches(6)
    reference = train_reference(lambda: nn.Sequential(*make_stages(3)), PlainSGD, batches, F.cross_entropy)
    losses = train_delayed(make_stages(3), PlainSGD, batches, F.cross_entropy, (0, 0, 0))
    torch.testing.assert_close(losses, reference.losses)


def test_the_recurrence_of_the_paper_by_hand():
    """Two weights of one number each, f = (a b x - y)^2, and a has a delay of 1."""
    lr, a, b = LEARNING_RATE, [2.0, 2.0], [3.0]  # a[t] is the version that step t reads
    batches = [(torch.tensor([[float(x)]]), torch.tensor([[1.0]])) for x in (1, -1, 2)]
    expected = []
    for x, y in batches:
        error = a[-2] * b[-1] * x.item() - y.item()
        expected.append(error**2)
        slope = 2 * error * x.item()
        a, b = [*a, a[-1] - lr * slope * b[-1]], [*b, b[-1] - lr * slope * a[-2]]
    stages = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    nn.init.constant_(stages[0].weight, 2.0)
    nn.init.constant_(stages[1].weight, 3.0)
    losses = train_delayed(stages, PlainSGD, batches, F.mse_loss, (1, 0))
    torch.testing.assert_close(losses, expected)
    assert (stages[0].weight.item(), stages[1].weight.item()) == pytest.approx((a[-1], b[-1]))


def test_pipedreams_delays_fall_to_zero_at_the_last_stage():
    assert pipedream_delays(4) == (3, 2, 1, 0)
    assert pipedream_delays(1) == (0,)


@pytest.mark.parametrize("delays", [(0, 0), (0, 0, -1)])
def test_other_than_a_delay_for_each_stage_is_refused(delays):
    with pytest.raises(ValueError, match="a delay of 0 or more for each of 3 stages"):
        train_delayed(make_stages(3), PlainSGD, [], F.cross_entropy, delays)
