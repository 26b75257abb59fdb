"""LARS and LAMB against their papers' algorithms, written down again with plain numbers."""

import copy
import math

import pytest
import torch

from dtlearn.data_parallel.large_batch.lamb import LAMB
from dtlearn.data_parallel.large_batch.lars import LARS, LayerwiseOptimizer, trust_ratio

WEIGHT, BIAS = [[3.0, 0.0], [0.0, -4.0]], [0.0, 2.0]  # norms 5 and 2
GRADIENTS = [  # of weight and bias, update by update
    ([[0.6, 0.0], [0.8, 0.0]], [1.0, 0.0]),
    ([[0.0, 2.0], [0.0, 0.0]], [0.0, -3.0]),
    ([[-1.0, 1.0], [1.0, 1.0]], [0.5, 0.5]),
]
RATES = [0.5, 0.25, 0.5]  # of each update: the rate changes


def norm(values):
    return math.sqrt(sum(v * v for v in values))


def lars_by_hand(w, gradients, momentum, decay, eta):
    """Algorithm 1 of 1708.03888, for one layer as a list of numbers."""
    v = [0.0] * len(w)
    for lr, g in zip(RATES, gradients, strict=True):
        local = eta * norm(w) / (norm(g) + decay * norm(w))
        v = [momentum * vi + lr * local * (gi + decay * wi) for vi, gi, wi in zip(v, g, w, strict=True)]
        w = [wi - vi for wi, vi in zip(w, v, strict=True)]
    return w


def lamb_by_hand(x, gradients, b1, b2, eps, decay):
    """Algorithm 2 of 1904.00962 with phi(z) = z, for one layer as a list of numbers."""
    m, v = [0.0] * len(x), [0.0] * len(x)
    for t, (lr, g) in enumerate(zip(RATES, gradients, strict=True), start=1):
        m = [b1 * mi + (1 - b1) * gi for mi, gi in zip(m, g, strict=True)]
        v = [b2 * vi + (1 - b2) * gi * gi for vi, gi in zip(v, g, strict=True)]
        r = [(mi / (1 - b1**t)) / (math.sqrt(vi / (1 - b2**t)) + eps) for mi, vi in zip(m, v, strict=True)]
        u = [ri + decay * xi for ri, xi in zip(r, x, strict=True)]
        x = [xi - lr * norm(x) / norm(u) * ui for xi, ui in zip(x, u, strict=True)]
    return x


def flat(values):
    return torch.tensor(values).flatten().tolist()


def run(make):
    """Weight and bias after the updates, as lists."""
    parameters = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in (WEIGHT, BIAS)]
    unused = torch.ones(2, requires_grad=True)
    optimizer = make([*parameters, unused])
    for lr, gradients in zip(RATES, GRADIENTS, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = lr
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = torch.tensor(g, dtype=torch.float64)
        assert optimizer.step(lambda: 7.0) == 7.0
    assert unused.tolist() == [1, 1]
    return [p.detach().flatten().tolist() for p in parameters]


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lars_is_the_algorithm_of_the_paper(decay):
    weight, bias = run(lambda p: LARS(p, 0.5, momentum=0.9, weight_decay=decay, trust_coefficient=0.02))
    assert weight == pytest.approx(lars_by_hand(flat(WEIGHT), [flat(g) for g, _ in GRADIENTS], 0.9, decay, 0.02))
    assert bias == pytest.approx(lars_by_hand(BIAS, [g for _, g in GRADIENTS], 0.9, decay, 0.02))


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lamb_is_the_algorithm_of_the_paper(decay):
    weight, bias = run(lambda p: LAMB(p, 0.5, betas=(0.8, 0.95), eps=1e-3, weight_decay=decay))
    assert weight == pytest.approx(lamb_by_hand(flat(WEIGHT), [flat(g) for g, _ in GRADIENTS], 0.8, 0.95, 1e-3, decay))
    assert bias == pytest.approx(lamb_by_hand(BIAS, [g for _, g in GRADIENTS], 0.8, 0.95, 1e-3, decay))


def test_what_is_excluded_is_trained_by_plain_adam_or_sgd():
    _, bias = run(lambda p: LAMB(p, 0.5, eps=1e-6, weight_decay=0.1, exclude_bias_and_norm=True))
    _, plain = run(lambda p: torch.optim.Adam(p, 0.5, eps=1e-6))
    assert bias == pytest.approx(plain)
    weight, bias = run(lambda p: LARS(p, 0.5, momentum=0.0, weight_decay=0.1, exclude_bias_and_norm=True))
    _, plain = run(lambda p: torch.optim.SGD(p, 0.5))
    assert bias == pytest.approx(plain)
    assert weight == pytest.approx(lars_by_hand(flat(WEIGHT), [flat(g) for g, _ in GRADIENTS], 0.0, 0.1, 0.001))


def first_step(make, scale):
    """How far one step goes, against the norm of the weight, if the gradient is `scale` times as large."""
    w = torch.tensor(WEIGHT, requires_grad=True)
    w.grad = scale * torch.tensor(GRADIENTS[0][0])
    before = w.detach().clone()
    make([w]).step()
    return ((w.detach() - before).norm() / before.norm()).item()


@pytest.mark.parametrize("make", [lambda p: LARS(p, 2.0, trust_coefficient=0.01), lambda p: LAMB(p, 0.02)])
def test_a_layer_moves_by_a_share_of_its_norm_whatever_its_gradient_is(make):
    assert first_step(make, 1.0) == pytest.approx(0.02, rel=1e-4)
    assert first_step(make, 1e4) == pytest.approx(0.02, rel=1e-4)
    sgd = [first_step(lambda p: torch.optim.SGD(p, 0.02), scale) for scale in (1.0, 1e4)]
    assert sgd[1] > 1e3 * sgd[0]


def test_the_rate_of_lars_is_inside_its_momentum_and_that_of_sgd_outside():
    """After the rate falls to 0, LARS coasts on and SGD stands still."""
    moved = []
    for make in (lambda p: LARS(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)):
        w = torch.ones(2, 2, requires_grad=True)
        optimizer = make([w])
        w.grad = torch.ones(2, 2)
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.0
        before = w.detach().clone()
        optimizer.step()
        moved.append(not torch.equal(before, w.detach()))
    assert moved == [True, False]


def test_a_norm_of_zero_means_no_scaling():
    zero, one = torch.zeros(3), torch.ones(())
    assert trust_ratio(zero, one, 0.5) == trust_ratio(torch.ones(3), 0 * one, 0.5) == 1
    for make in (lambda p: LARS(p, 0.1), lambda p: LAMB(p, 0.1)):
        w = torch.zeros(2, requires_grad=True)
        optimizer = make([w])
        w.grad = torch.tensor([1.0, -1.0])
        optimizer.step()
        assert w.tolist() == pytest.approx([-0.1, 0.1], rel=1e-4), "it leaves 0"


@pytest.mark.parametrize("make", [lambda p: LARS(p, 0.1), lambda p: LAMB(p, 0.1)])
def test_a_checkpoint_goes_on_where_it_stopped(make):
    a, b = (torch.tensor(WEIGHT, requires_grad=True) for _ in range(2))
    first, second = make([a]), make([b])
    for w, optimizer in ((a, first), (b, second)):
        w.grad = torch.tensor(GRADIENTS[0][0])
        optimizer.step()
    fresh = make([b])
    fresh.load_state_dict(copy.deepcopy(first.state_dict()))  # a file would copy too
    for w, optimizer in ((a, first), (b, fresh)):
        w.grad = torch.tensor(GRADIENTS[1][0])
        optimizer.step()
    assert torch.equal(a, b)
    assert not torch.equal(a.detach(), torch.tensor(WEIGHT))


@pytest.mark.parametrize(
    "make",
    [
        lambda p: LARS(p, -1.0),
        lambda p: LARS(p, 0.1, momentum=1.0),
        lambda p: LARS(p, 0.1, momentum=-0.1),
        lambda p: LARS(p, 0.1, weight_decay=-1e-9),
        lambda p: LARS(p, 0.1, trust_coefficient=-1e-9),
        lambda p: LAMB(p, -1.0),
        lambda p: LAMB(p, betas=(0.9, 1.0)),
        lambda p: LAMB(p, betas=(1.0, 0.9)),
        lambda p: LAMB(p, betas=(-0.1, 0.9)),
        lambda p: LAMB(p, eps=-1e-9),
        lambda p: LAMB(p, weight_decay=-1e-9),
    ],
)
def test_impossible_values_are_refused(make):
    with pytest.raises(ValueError, match="must not be negative"):
        make([torch.zeros(1, requires_grad=True)])


def test_values_at_the_limit_are_allowed_and_the_rest_has_the_papers_defaults():
    w = [torch.zeros(1, requires_grad=True)]
    LARS(w, 0.0, momentum=0.0, weight_decay=0.0, trust_coefficient=0.0)
    LAMB(w, 0.0, betas=(0.0, 0.0), eps=0.0, weight_decay=0.0)
    assert LARS(w, 0.1).defaults == {
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "trust_coefficient": 0.001,
        "exclude_bias_and_norm": False,
    }
    assert LAMB(w).defaults == {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-6,
        "weight_decay": 0.0,
        "exclude_bias_and_norm": False,
    }


def test_a_matrix_is_never_excluded_and_the_closure_has_gradients():
    included, excluded = (
        run(lambda p, e=e: LAMB(p, 0.5, weight_decay=0.1, exclude_bias_and_norm=e))[0] for e in (False, True)
    )
    assert included == excluded
    w = torch.tensor(WEIGHT, requires_grad=True)
    optimizer = LARS([w], 0.1)
    w.grad = torch.ones_like(w)
    assert optimizer.step() is None
    assert optimizer.step(lambda: w.square().sum().requires_grad) is True


def test_an_optimizer_of_this_kind_says_how_one_parameter_is_updated():
    w = torch.ones(1, requires_grad=True)
    w.grad = torch.ones(1)
    with pytest.raises(NotImplementedError, match="how one parameter is updated"):
        LayerwiseOptimizer([w], {}).step()
