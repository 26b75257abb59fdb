"""The noise scale on a problem where it is known: linear regression on Gaussian inputs.

y = w* . x + s e with x and e from standard normal distributions in D dimensions and one; the loss of a sample is
(w . x - y)^2 / 2. With d = w - w* its gradient is x (x . d - s e), whose mean is G = d. As E[x x^T (x . d)^2] is
|d|^2 I + 2 d d^T, tr(Sigma) = (D + 1) |d|^2 + D s^2. The Hessian is the identity.
"""

import math

import pytest
import torch

from dtlearn.data_parallel.large_batch.noise_scale import (
    NoiseEstimate,
    NoiseScale,
    fit_steps,
    noise_estimate,
    squared_norm,
    steps_to_reach,
)
from dtlearn.runtime.run import run_ranks

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


def test_the_ratio_of_averages_converges_and_the_average_of_ratios_does_not():
    scale, ratios = NoiseScale(decay=0.999), []
    for estimate in zip(*(values.tolist() for values in estimates(5_000, 4, 4)), strict=True):
        scale.add(NoiseEstimate(*estimate))
        ratios.append(estimate[1] / estimate[0])
    assert scale.value == pytest.approx(NOISE, rel=0.15)
    average_of_ratios = sum(ratios) / len(ratios)
    assert abs(average_of_ratios - NOISE) > 0.5 * NOISE


def test_averages_begin_at_the_first_estimate():
    scale = NoiseScale(decay=0.9)
    with pytest.raises(ValueError, match="call add"):
        _ = scale.value
    scale.add(NoiseEstimate(2.0, 6.0))
    assert scale.average == pytest.approx((2, 6)) and scale.value == pytest.approx(3)
    scale.add(NoiseEstimate(4.0, 6.0))
    assert scale.average.gradient_sq == pytest.approx((0.9 * 2 + 4) / 1.9)
    scale.add(NoiseEstimate(-99.0, 6.0))
    assert scale.value == math.inf
    with pytest.raises(ValueError, match=r"\[0, 1\)"):
        NoiseScale(decay=1.0)


@pytest.mark.parametrize(("small", "big"), [(4, 4), (8, 4), (0, 4)])
def test_two_batch_sizes_are_needed(small, big):
    with pytest.raises(ValueError, match="micro-batches"):
        noise_estimate(1.0, 1.0, small, big)


def test_norms_add_up_and_unused_parameters_count_nothing():
    assert squared_norm([torch.tensor([3.0, 4.0]), None, torch.tensor(2.0)]) == 29
    assert squared_norm([None]) == 0


def on_ranks(steps, batch, ours):
    """Train nothing, estimate: inside our or torch's DDP with the hook, and by hand, on the same gradients."""
    import torch.distributed as dist

    from dtlearn.data_parallel.ddp import DistributedDataParallel
    from dtlearn.data_parallel.large_batch.noise_scale import LocalNorm, NoiseScale, estimate_across_ranks, squared_norm

    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Linear(D, 1, bias=False).double()
    torch.nn.init.constant_(model.weight, 0)
    with torch.no_grad():
        model.weight += OFFSET  # w* = 0
    ddp = (DistributedDataParallel if ours else torch.nn.parallel.DistributedDataParallel)(model)
    norm = LocalNorm()
    ddp.register_comm_hook(norm, LocalNorm.hook)
    g = torch.Generator().manual_seed(rank)
    scale = NoiseScale(decay=0.999)
    worst = 0.0
    for _ in range(steps):
        x = torch.randn(batch, D, generator=g, dtype=torch.float64)
        y = S * torch.randn(batch, generator=g, dtype=torch.float64)
        own = ((x @ OFFSET - y).unsqueeze(1) * x).mean(0)
        model.zero_grad()
        ((ddp(x).squeeze(1) - y).square() / 2).mean().backward()
        local, averaged = norm.take(), squared_norm(p.grad for p in model.parameters())
        scale.add(estimate_across_ranks(local, averaged, batch))
        mean = own.clone()
        dist.all_reduce(mean)
        worst = max(
            worst, abs(local - own.square().sum()).item(), (model.weight.grad[0] - mean / size).abs().max().item()
        )
    return worst, scale.value, norm.take().item()


@pytest.mark.parametrize("ours", [True, False])
def test_ddp_with_the_hook_finds_the_noise_scale(ours):
    done = run_ranks(on_ranks, 3, 120, 16, ours).values
    for worst, value, left in done:
        assert worst < 1e-12, "the hook sees the local gradients, and averages them"
        assert value == done[0][1] == pytest.approx(NOISE, rel=0.25)
        assert left == 0


def one_estimate():
    from dtlearn.data_parallel.large_batch.noise_scale import estimate_across_ranks

    local = torch.tensor(4.0)
    estimate = estimate_across_ranks(local, torch.tensor(2.0), 3)
    return tuple(estimate), local.item()


def test_one_message_of_eight_bytes():
    done = run_ranks(one_estimate, 2, record=True, device="cpu")
    assert done.values == [((0.0, pytest.approx(12.0)), 4.0)] * 2
    assert [(e.op, e.nbytes) for e in done.record] == [("all_reduce", 8)] * 2


def hook_messages():
    from dtlearn.data_parallel.large_batch.noise_scale import LocalNorm

    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 1))
    norm = LocalNorm()
    ddp.register_comm_hook(norm, LocalNorm.hook)
    ddp(torch.ones(2, 5)).sum().backward()


def test_the_hook_adds_no_message():
    record = run_ranks(hook_messages, 2, record=True, device="cpu").record
    assert [e.nbytes for e in record if e.rank == 0 and e.op == "all_reduce"] == [6 * 4]


def without_the_message():
    import torch.distributed as dist

    from dtlearn.data_parallel.large_batch.noise_scale import estimate_across_ranks

    dist.all_reduce = lambda tensor, group=None: None
    return estimate_across_ranks(torch.tensor(1.0 + dist.get_rank()), torch.tensor(1.0), 3).trace


def test_without_the_message_ranks_disagree():
    a, b = run_ranks(without_the_message, 2).values
    assert a != b


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


def test_a_decay_of_0_keeps_the_last_step_only_and_others_are_a_share():
    last = NoiseScale(decay=0)
    last.add(NoiseEstimate(4.0, 1.0))
    last.add(NoiseEstimate(2.0, 6.0))
    assert last.average == (2.0, 6.0) and last.value == 3.0
    half = NoiseScale(decay=0.5)
    half.add(NoiseEstimate(4.0, 1.0))
    half.add(NoiseEstimate(1.0, 4.0))
    assert half.average == pytest.approx((2.0, 3.0)) and half.value == pytest.approx(1.5)
    for wrong in (-0.1, 1, 1.5):
        with pytest.raises(ValueError, match="decay"):
            NoiseScale(decay=wrong)
