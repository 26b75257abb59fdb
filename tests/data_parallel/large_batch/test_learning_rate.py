"""Scaling rules and schedules."""

import math

import pytest
import torch

from dtlearn.data_parallel.large_batch.learning_rate import (
    WarmupThenCosine,
    go_on_at,
    half_cosine,
    linear_scaled_lr,
    lr_factor,
    make_scheduler,
    scaled_lr,
    sqrt_scaled_lr,
    warmup_factor,
)


def test_the_rates_of_the_papers():
    assert linear_scaled_lr(0.1, 8192, 256) == pytest.approx(3.2)  # Goyal et al.
    assert sqrt_scaled_lr(0.01, 1024, 128) == pytest.approx(0.01 * math.sqrt(8))
    with pytest.raises(ValueError, match="at least 1"):
        linear_scaled_lr(0.1, 0, 256)


def gradient(w, samples):
    """The gradient of the mean of (w . x - 1)^2 / 2 over samples (n, D)."""
    return ((samples @ w - 1).unsqueeze(1) * samples).mean(0)


def after_k_steps_and_one(lr, k):
    """The weights after k steps on small batches, and after one step on all samples with the scaled rate."""
    g = torch.Generator().manual_seed(0)
    batches = torch.randn(k, 8, 5, generator=g, dtype=torch.float64)
    start = torch.randn(5, generator=g, dtype=torch.float64)
    w = start.clone()
    for samples in batches:
        w -= lr * gradient(w, samples)
    return w, start - linear_scaled_lr(lr, 8 * k, 8) * gradient(start, batches.flatten(0, 1))


def test_linear_scaling_is_right_to_first_order():
    """With a rate ten times lower the difference is a hundred times smaller; with a wrong factor, ten times."""
    far, near = ((a - b).norm() for a, b in (after_k_steps_and_one(lr, 4) for lr in (1e-3, 1e-4)))
    assert 90 < far / near < 110
    small, large = after_k_steps_and_one(1e-4, 4)
    assert (small - large).norm() < 0.01 * (small - after_k_steps_and_one(0.0, 4)[0]).norm()


def test_square_root_scaling_keeps_the_variance_of_the_update():
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(400_000, generator=g, dtype=torch.float64)
    small = 0.1 * noise.view(-1, 4).mean(1)
    large = sqrt_scaled_lr(0.1, 64, 4) * noise.view(-1, 64).mean(1)
    linear = linear_scaled_lr(0.1, 64, 4) * noise.view(-1, 64).mean(1)
    assert large.var() / small.var() == pytest.approx(1, abs=0.05)
    assert linear.var() / small.var() == pytest.approx(16, rel=0.05)


def test_warm_up_rises_by_equal_amounts():
    assert [warmup_factor(t, 4, 0.2) for t in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    assert warmup_factor(0, 0, 0.2) == 1


def rates(schedule, steps, lr=3.2):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def test_cosine_in_torchs_scheduler_is_torchs_own():
    seen = rates(WarmupThenCosine(5, 25, start=1 / 32, final=0.1), 30)
    assert seen[:6] == pytest.approx([0.1 + 3.1 * t / 5 for t in range(6)])  # Goyal et al.: from the small batch's rate
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3.2)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=0.32)
    for ours in seen[5:26]:
        assert ours == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert seen[25:] == pytest.approx([0.32] * 5)


def test_a_schedule_survives_a_checkpoint():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    first = torch.optim.lr_scheduler.LambdaLR(optimizer, WarmupThenCosine(2, 10))
    again = torch.optim.lr_scheduler.LambdaLR(optimizer, WarmupThenCosine(3, 99))
    again.load_state_dict(first.state_dict())
    assert again.lr_lambdas[0] == WarmupThenCosine(2, 10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WarmupThenCosine(10, 10), "leave nothing"),
        (lambda: WarmupThenCosine(-1, 10), "0 steps or more"),
        (lambda: WarmupThenCosine(1, 10, start=2.0), "0 to 1"),
        (lambda: WarmupThenCosine(1, 10, final=-0.1), "0 to 1"),
    ],
)
def test_impossible_schedules_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_factor_of_a_run_rises_and_falls():
    factors = [lr_factor(step, warmup=4, total=12) for step in range(13)]
    assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors[8] == pytest.approx(0.5) and factors[12] == pytest.approx(0)
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert [scaled_lr(0.1, 384, 96, rule) for rule in ("none", "linear", "sqrt")] == [0.1, 0.4, 0.2]
    for rule, rate in (("linear", 0.4), ("sqrt", 0.2)):
        with pytest.raises(ValueError, match="a batch has at least 1 sample; got 384 and 0"):
            scaled_lr(rate, 384, 0, rule)


def test_a_warm_up_can_be_the_whole_run_or_nothing():
    assert [lr_factor(step, warmup=2, total=2) for step in range(3)] == [0.5, 1.0, 1.0]
    assert lr_factor(3, warmup=2, total=2) == 0  # no steps are left
    assert [lr_factor(step, warmup=0, total=2) for step in range(4)] == pytest.approx([1.0, 0.5, 0.0, 0.0])


def test_half_a_cosine():
    assert [half_cosine(step, 4) for step in range(6)] == pytest.approx(
        [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0]
    )


def test_schedules_at_the_limit_are_allowed():
    assert (linear_scaled_lr(0.1, 1, 1), sqrt_scaled_lr(0.1, 1, 4)) == (0.1, 0.05)
    assert WarmupThenCosine(9, 10, start=1.0, final=1.0)(3) == 1.0
    assert [WarmupThenCosine(0, 2)(step) for step in range(3)] == pytest.approx([1.0, 0.5, 0.0])
    assert WarmupThenCosine(4, 8)(0) == 0.0 and WarmupThenCosine(4, 8)(1) == 0.25
    for wrong in (1.1, -0.1):
        with pytest.raises(ValueError, match="0 to 1"):
            WarmupThenCosine(1, 10, final=wrong)


def test_a_resume_goes_on_at_its_step_with_the_rate_of_the_new_run():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = make_scheduler(optimizer, warmup=2, total=6)
    seen = []
    for _ in range(3):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert seen == pytest.approx([0.25, 0.5, 0.5])
    go_on_at(scheduler, 8.0)
    factor = lr_factor(3, warmup=2, total=6)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(8 * factor) and scheduler.base_lrs == [8.0]
    assert optimizer.param_groups[0]["initial_lr"] == 8.0
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(8 * lr_factor(4, warmup=2, total=6))
