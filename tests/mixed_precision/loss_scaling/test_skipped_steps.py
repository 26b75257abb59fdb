"""Schedules do not move on a skipped step, with our scaler and with torch's."""

import warnings

import pytest
import torch
from torch import nn

from dtlearn.mixed_precision import GradScaler, MasterWeights, step_unless_skipped

SCALERS = {"ours": GradScaler, "torch's": lambda scale, **options: torch.amp.GradScaler("cpu", scale, **options)}
OVERFLOWS = [True, True, False, False, True, False]  # in these steps


def train(scaler, move, wrap=lambda p, c, **o: c(p, **o)):
    """The learning rate before each step, and Adam's own count of steps at the end."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = wrap([weight], torch.optim.Adam, lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    rates, taken = [], []
    for overflows in OVERFLOWS:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        scaler.scale((weight * (3e38 if overflows else 1.0)).sum()).backward()
        if isinstance(optimizer, MasterWeights):
            optimizer.copy_gradients_to_masters()
        taken.append(move(scaler, optimizer, scheduler))
        scaler.update()
    (state,) = optimizer.state.values()
    return rates, taken, int(state["step"])


def always(scaler, optimizer, scheduler):
    """What most loops do."""
    scaler.step(optimizer)
    scheduler.step()


@pytest.mark.parametrize("name", SCALERS)
@pytest.mark.parametrize("wrap", [MasterWeights, None])
def test_the_rate_moves_with_the_steps_that_were_taken(name, wrap):
    scaler = SCALERS[name](64.0)
    rates, taken, count = train(scaler, step_unless_skipped, *([wrap] if wrap else []))
    assert taken == [not overflows for overflows in OVERFLOWS]
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.25, 0.25]
    assert count == sum(taken) == 3
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("name", SCALERS)
def test_a_scheduler_that_always_moves_is_found(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rates, _, count = train(SCALERS[name](64.0), always)
    assert rates == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125] and count == 3
    assert any("`lr_scheduler.step()` before `optimizer.step()`" in str(warning.message) for warning in caught)


def test_no_scheduler_and_a_scaler_that_never_skips():
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.sum().backward()
    assert step_unless_skipped(GradScaler(enabled=False), optimizer)
    assert not optimizer._optimizer_step_post_hooks  # it leaves nothing behind


def test_several_optimizers_are_told_apart():
    """One overflows: its schedule waits, the other's moves; both have the same scaler."""
    weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizers, scaler = [torch.optim.SGD([weight], lr=1.0) for weight in weights], GradScaler(64.0)
    scaler.scale((weights[0] * 3e38).sum()).backward()
    scaler.scale(weights[1].sum()).backward()
    assert [step_unless_skipped(scaler, optimizer) for optimizer in optimizers] == [False, True]
    scaler.update()
    assert scaler.get_scale() == 32.0


@pytest.mark.parametrize("unscaled", [False, True])
def test_a_fused_optimizer_skips_inside_of_its_step(unscaled):
    """torch's scaler calls it in any case: that `step` was called says nothing."""
    weight, scaler = nn.Parameter(torch.ones(3)), torch.amp.GradScaler("cpu", 8.0)
    optimizer = torch.optim.AdamW([weight], lr=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for overflows, rate in ((True, 0.1), (False, 0.05), (True, 0.05)):
        before = weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale((weight * (torch.inf if overflows else 1.0)).sum()).backward()
        if unscaled:
            scaler.unscale_(optimizer)
        assert step_unless_skipped(scaler, optimizer, scheduler) is not overflows
        scaler.update()
        assert optimizer.param_groups[0]["lr"] == rate
        assert torch.equal(weight, before) is overflows
