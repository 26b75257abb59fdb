"""The noise scale on a problem where it is known: linear regression on Gaussian inputs.

y = w* . x + s e with x and e from standard normal distributions in D dimensions and one; the loss of a sample is
(w . x - y)^2 / 2. With d = w - w* its gradient is x (x . d - s e), whose mean is G = d. As E[x x^T (x . d)^2] is
|d|^2 I + 2 d d^T, tr(Sigma) = (D + 1) |d|^2 + D s^2. The Hessian is the identity.
"""

import math

import pytest
import torch

from dtlearn.data_parallel.large_batch.noise_scale import (
    fit_steps,
    noise_estimate,
    steps_to_reach,
)

D, S = 4, 2.0
OFFSET = torch.tensor([1.0, -1.0, 0.5, 0.0], dtype=torch.float64)  # d
SQUARED = OFFSET.square().sum().item()  # |G|^2 = 2.25
TRACE = (D + 1) * SQUARED + D * S**2  # 27.25
NOISE = TRACE / SQUARED  # 12.1


def gradients(steps, ranks, batch, seed=0, offset=OFFSET):
    """Gradients of every rank's batch, (steps, ranks, D)."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, ranks, batch, D, generator=g, dtype=torch.float64)
    e = torch.randn(steps, ranks, batch, generator=g, dtype=torch.float64)
    return ((x @ offset - S * e).unsqueeze(-1) * x).mean(2)


def estimates(steps, ranks, batch, seed=0):
    """|G|^2 and tr(Sigma) of each step, (steps,) each."""
    local = gradients(steps, ranks, batch, seed)
    small, big = local.square().sum(-1).mean(1), local.mean(1).square().sum(-1)
    pairs = [noise_estimate(a, b, batch, ranks * batch) for a, b in zip(small.tolist(), big.tolist(), strict=True)]
    return torch.tensor(pairs, dtype=torch.float64).unbind(1)


def error(values):
    """Standard error of the mean."""
    return (values.std() / math.sqrt(len(values))).item()


@pytest.mark.parametrize(("ranks", "batch"), [(2, 1), (4, 3), (8, 16)])
def test_the_estimates_are_unbiased(ranks, batch):
    gradient_sq, trace = estimates(20_000, ranks, batch)
    for values, right in ((gradient_sq, SQUARED), (trace, TRACE)):
        assert abs(values.mean().item() - right) < 4 * error(values)
        assert error(values) < 0.05 * right, "the test would not see an error of a fifth"


def test_norms_without_the_correction_are_biased():
    local = gradients(20_000, 4, 3)
    averaged = local.mean(1).square().sum(-1)
    assert averaged.mean().item() == pytest.approx(SQUARED + TRACE / 12, rel=0.05)  # (A.1), twice |G|^2


@pytest.mark.parametrize(("small", "big"), [(4, 4), (8, 4), (0, 4)])
def test_two_batch_sizes_are_needed(small, big):
    with pytest.raises(ValueError, match="micro-batches"):
        noise_estimate(1.0, 1.0, small, big)


def test_the_trade_off_is_the_hyperbola_of_the_paper():
    for batch in (1, 50, 100, 5000):
        steps = steps_to_reach(batch, 200, 100)
        samples = batch * steps
        assert (steps / 200 - 1) * (samples / 20_000 - 1) == pytest.approx(1)
    assert steps_to_reach(100, 200, 100) == 400  # twice the least; and 40,000 samples, twice the least of those


def test_the_fit_finds_what_made_the_points():
    exact = {b: steps_to_reach(b, 200, 100) for b in (8, 32, 128, 1024)}
    assert fit_steps(exact) == pytest.approx((200, 100))
    noisy = {b: s * f for (b, s), f in zip(exact.items(), (1.05, 0.95, 1.05, 0.95), strict=True)}
    min_steps, critical = fit_steps(noisy)
    assert min_steps == pytest.approx(200, rel=0.1) and critical == pytest.approx(100, rel=0.25)
    with pytest.raises(ValueError, match="two batch sizes"):
        fit_steps({8: 100})
    with pytest.raises(ValueError, match="larger batches"):
        fit_steps({8: 100, 16: 40})
