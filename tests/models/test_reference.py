"""The reference run and the comparison with it: exact, and unable to pass by accident."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.models import (
    GPT,
    MLP,
    GPTConfig,
    load_corpus,
    load_digits,
    max_difference,
    next_token_loss,
    num_parameters,
    reference_step,
    snapshot_gradients,
    snapshot_parameters,
    train_reference,
)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def test_one_step_by_hand():
    """y = w x with w = 2 and the loss mean((y - t)^2): the gradient is mean(2 x (w x - t))."""
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(2.0)
    batch = torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [2.0]])
    step = reference_step(model, sgd(model.parameters()), batch, F.mse_loss)
    assert step.loss == pytest.approx((1 + 16) / 2)
    assert step.gradients["weight"].item() == pytest.approx((2 * 1 * 1 + 2 * 3 * 4) / 2)
    assert step.parameters["weight"].item() == pytest.approx(2 - 0.1 * 13)


@pytest.mark.parametrize("make_optimizer", [sgd, adam])
def test_a_run_is_the_plain_training_loop(make_optimizer):
    batches = list(load_digits().batches(4, 16))
    run = train_reference(MLP, make_optimizer, batches, F.cross_entropy, seed=3)
    torch.manual_seed(3)
    model = MLP()
    assert max_difference(run.initial, dict(model.named_parameters())).value == 0
    optimizer = make_optimizer(model.parameters())
    for step, (x, y) in zip(run.steps, batches, strict=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        assert step.loss == loss.item()
        assert max_difference(step.gradients, {n: p.grad for n, p in model.named_parameters()}).value == 0
        optimizer.step()
        assert max_difference(step.parameters, dict(model.named_parameters())).value == 0
    assert run.losses == [step.loss for step in run.steps]


def test_a_run_can_be_repeated_exactly_with_dropout_too():
    def make_model():
        return GPT(GPTConfig(num_layers=1, hidden_size=16, dropout=0.1))

    batches = list(load_corpus().batches(3, 2, 8))
    first, again = (train_reference(make_model, adam, batches, next_token_loss) for _ in range(2))
    assert first.losses == again.losses
    assert max_difference(first.steps[-1].parameters, again.steps[-1].parameters).value == 0


def test_mean_of_microbatch_gradients_is_the_gradient_of_the_global_batch():
    """What gradient accumulation and data parallelism rely on."""
    ((x, y),) = load_digits().batches(1, 32)
    step = train_reference(MLP, sgd, [(x, y)], F.cross_entropy).steps[0]
    torch.manual_seed(0)
    model = MLP()
    for rows in (slice(0, 8), slice(8, 16), slice(16, 24), slice(24, 32)):
        (F.cross_entropy(model(x[rows]), y[rows]) / 4).backward()
    assert max_difference(step.gradients, snapshot_gradients(model)).value < 1e-7


def test_snapshots_are_copies():
    model = MLP((2, 2))
    model(torch.ones(1, 2)).sum().backward()
    parameters, gradients = snapshot_parameters(model), snapshot_gradients(model)
    before = parameters["layers.0.weight"].clone()
    with torch.no_grad():
        model.layers[0].weight.add_(1)
        model.layers[0].weight.grad.add_(1)
    assert torch.equal(parameters["layers.0.weight"], before)
    assert gradients["layers.0.weight"].tolist() == [[1, 1], [1, 1]]
    assert not parameters["layers.0.weight"].requires_grad


def test_frozen_and_unused_parameters_have_no_gradient_and_tied_ones_appear_once():
    model = GPT(GPTConfig(num_layers=1, hidden_size=16, tie_embeddings=True))
    model.unused = nn.Linear(1, 1)
    model.blocks[0].attention.query.weight.requires_grad_(False)
    ((x, y),) = load_corpus().batches(1, 2, 8)
    step = reference_step(model, sgd(model.parameters()), (x, y), next_token_loss)
    missing = set(step.parameters) - set(step.gradients)
    assert missing == {"unused.weight", "unused.bias", "blocks.0.attention.query.weight"}
    assert "head.projection.weight" not in step.parameters
    assert num_parameters(model) == sum(p.numel() for p in step.parameters.values())


def test_a_run_without_batches_is_refused():
    with pytest.raises(ValueError, match="batches is empty"):
        train_reference(MLP, sgd, [], F.cross_entropy)


def test_max_difference_names_the_worst_tensor():
    a = {"w": torch.zeros(2, 2), "b": torch.zeros(3)}
    b = {"w": torch.full((2, 2), 0.25), "b": torch.tensor([0.0, -0.5, 0.0])}
    worst = max_difference(a, b)
    assert worst == ("b", 0.5) and str(worst) == "b differs by 0.5"
    assert max_difference(a, a).value == 0


def test_max_difference_sees_what_float32_arithmetic_would_round_away():
    a, b = {"w": torch.tensor(1.0)}, {"w": torch.tensor(1.0, dtype=torch.float64) + 1e-12}
    assert max_difference(a, b).value == pytest.approx(1e-12, rel=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_never_passes(bad):
    fine, broken = {"w": torch.ones(2)}, {"w": torch.tensor([1.0, bad])}
    for a, b in ((fine, broken), (broken, fine), (broken, broken)):
        assert max_difference(a, b) == ("w", math.inf)


def test_max_difference_refuses_what_it_cannot_compare():
    one = {"w": torch.ones(2)}
    with pytest.raises(ValueError, match=r"only in a \['w'\], only in b \['module.w'\]"):
        max_difference(one, {"module.w": torch.ones(2)})
    with pytest.raises(ValueError, match=r"w has shape \(2,\) in a, \(2, 1\) in b"):
        max_difference(one, {"w": torch.ones(2, 1)})
    with pytest.raises(ValueError, match="nothing to compare"):
        max_difference({}, {})
