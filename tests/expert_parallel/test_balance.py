import pytest
import torch

from dtlearn.expert_parallel.balance import (
    attach_loss,
    balanced_bias,
    imbalance,
    load_balancing_loss,
    router_z_loss,
)
from dtlearn.expert_parallel.routing import count_choices, route


@pytest.mark.parametrize(("load", "number"), [([3, 3, 3, 3], 1.0), ([12, 0, 0, 0], 4.0), ([6, 2, 2, 2], 2.0)])
def test_imbalance(load, number):
    assert imbalance(torch.tensor(load)) == number


def test_no_load_has_no_imbalance():
    with pytest.raises(ValueError, match="expected a load with at least one choice"):
        imbalance(torch.zeros(4, dtype=torch.int64))


def test_the_loss_is_1_if_even_and_E_if_one_expert_has_all():
    even = torch.full((8, 4), 0.25)
    assert load_balancing_loss(even, torch.tensor([2, 2, 2, 2]), 8).item() == 1.0
    one = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).expand(8, 4)
    assert load_balancing_loss(one, torch.tensor([8, 0, 0, 0]), 8).item() == 4.0


def test_equations_4_to_6_of_switch():
    logits = torch.randn(30, 5, dtype=torch.float64)
    p = logits.softmax(-1)
    f = torch.stack([(p.argmax(-1) == i).double().mean() for i in range(5)])
    P = torch.stack([p[:, i].mean() for i in range(5)])
    expected = 5 * sum(f[i] * P[i] for i in range(5))
    routing = route(logits, 1, renormalise=False)
    torch.testing.assert_close(load_balancing_loss(routing.probabilities, routing.load(), 30), expected)


def test_the_mean_over_ranks_with_counts_of_all_is_the_loss_of_all_tokens():
    logits = torch.randn(12, 4, dtype=torch.float64)
    p, load = logits.softmax(-1), count_choices(logits.argmax(-1), 4)
    parts = [load_balancing_loss(own, load, 12, num_ranks=3) for own in p.split([2, 3, 7])]  # uneven ranks, too
    torch.testing.assert_close(sum(parts) / 3, load_balancing_loss(p, load, 12))


def test_it_pulls_towards_the_idle_expert():
    logits = torch.tensor([[1.0, 0.5]], dtype=torch.float64).repeat(4, 1).requires_grad_()
    load_balancing_loss(logits.softmax(-1), torch.tensor([4, 0]), 4).backward()
    assert (logits.grad[:, 0] > 0).all() and (logits.grad[:, 1] < 0).all()  # a step down makes expert 0 less likely


def test_z_loss():
    logits = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    two = torch.tensor(2.0, dtype=torch.float64).log()
    torch.testing.assert_close(router_z_loss(logits, 2), (two**2 + (1 + two) ** 2) / 2)


def test_no_token_has_no_loss():
    none, load = torch.empty(0, 3), torch.zeros(3, dtype=torch.int64)
    assert load_balancing_loss(none, load, 1).item() == router_z_loss(none, 1).item() == 0.0


def test_the_bias_evens_out_without_a_gradient():
    torch.manual_seed(0)
    logits, bias = torch.randn(400, 4) + torch.tensor([1.0, 0.0, 0.0, -1.0]), torch.zeros(4, dtype=torch.bfloat16)
    before = imbalance(route(logits, 1, renormalise=False, selection_bias=bias).load())
    for _ in range(300):
        bias = balanced_bias(bias, route(logits, 1, renormalise=False, selection_bias=bias).load(), speed=0.005)
    after = imbalance(route(logits, 1, renormalise=False, selection_bias=bias).load())
    assert before > 1.8 and after < 1.2 and bias.dtype == torch.float32


def test_balanced_bias_steps():
    bias = balanced_bias(torch.zeros(4), torch.tensor([5, 3, 1, 3]), speed=0.5)
    assert bias.tolist() == [-0.5, 0.0, 0.5, 0.0]


def test_attached_is_as_added():
    added, attached = (
        torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    added.requires_grad_(), attached.requires_grad_()
    (added.sin().sum() + 0.5 * added.square().sum()).backward()
    y = attach_loss(attached.sin(), 0.5 * attached.square().sum())
    assert torch.equal(y, attached.sin())
    y.sum().backward()
    assert torch.equal(added.grad, attached.grad)
