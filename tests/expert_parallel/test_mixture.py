"""The whole mixture beside a loop over tokens: what all others are held equal to has to be right itself."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from dtlearn.expert_parallel import ExpertGPTConfig, MixtureOfExperts, mixture_elements
from dtlearn.expert_parallel.mixture import Router
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import FeedForward

from .runs import CONFIGS, SMALL, num_expert_parameters

PLAIN = replace(SMALL, balance_coefficient=0.0, z_coefficient=0.0)


def one_by_one(mixture, x):
    """Each token by itself, with plain sums: (n, C) -> (n, C), and the auxiliary losses."""
    config, out = mixture.config, []
    k, experts = config.top_k, mixture.experts
    p = (x @ mixture.router.weight.t()).softmax(-1)
    chosen = []
    for token, of_token in zip(x, p, strict=True):
        best = sorted(range(config.num_experts), key=lambda e: -of_token[e].item())[:k]
        total = sum(of_token[e] for e in best) if k > 1 and config.renormalise is not False else 1.0
        y = 0
        for e in best:
            hidden = F.gelu(experts.up_weight[e] @ token + experts.up_bias[e])
            y = y + of_token[e] / total * (experts.down_weight[e] @ hidden + experts.down_bias[e])
        out.append(y)
        chosen += best
    f = [chosen.count(e) / len(chosen) for e in range(config.num_experts)]
    auxiliary = config.balance_coefficient * config.num_experts * sum(f[e] * p[:, e].mean() for e in range(len(f)))
    z = (x @ mixture.router.weight.t()).exp().sum(-1).log().square().mean()
    return torch.stack(out), auxiliary + config.z_coefficient * z


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_it_is_a_loop_over_tokens(config):
    mixture = MixtureOfExperts(config, seed=3).double()
    with torch.no_grad():
        mixture.router.weight.mul_(30)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    both = []
    for way in ("loop", "mixture"):
        inputs = x.clone().requires_grad_()
        mixture.zero_grad()
        if way == "loop":
            y, auxiliary = one_by_one(mixture, inputs.flatten(0, 1))
            (y.square().mean() + auxiliary).backward()
        else:
            y = mixture(inputs)
            y.square().mean().backward()
            assert y.shape == x.shape
            y = y.flatten(0, 1)
            torch.testing.assert_close(mixture.auxiliary_loss, auxiliary.detach())
        both.append([y, inputs.grad, *(p.grad.clone() for p in mixture.parameters())])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_one_expert_is_a_feed_forward_network():
    config = replace(PLAIN, num_experts=1, top_k=1)
    mixture, network = MixtureOfExperts(config, seed=3), FeedForward(GPTConfig(hidden_size=8))
    with torch.no_grad():
        for own, other in zip(mixture.experts.parameters(), network.parameters(), strict=True):
            other.copy_(own[0])
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(mixture(x), network(x))


def test_dropped_choices_add_nothing():
    config = replace(PLAIN, top_k=1, capacity_factor=1.0)
    mixture = MixtureOfExperts(config, seed=3)
    with torch.no_grad():
        mixture.router.selection_bias[2] = 5.0  # all want expert 2, which has room for 2 of 8
    y = mixture(torch.randn(8, 8))
    assert mixture.routing.num_dropped == 6 and mixture.load.tolist() == [0, 0, 8, 0]
    assert (y[2:] == 0).all() and (y[:2] != 0).all()


def test_the_router_is_fp32_in_a_bf16_model_and_under_autocast():
    mixture = MixtureOfExperts(SMALL, seed=3)
    x = torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        mixture(x)
    assert mixture.routing.logits.dtype == mixture.routing.weights.dtype == torch.float32
    exact = F.linear(x.flatten(0, 1), mixture.router.weight)
    assert torch.equal(mixture.routing.logits, exact)
    half = mixture.bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16 and mixture.routing.logits.dtype == torch.float32


def test_auxiliary_losses_are_scaled_and_only_when_training():
    mixture = MixtureOfExperts(SMALL, seed=3).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)

    def of_router(scale=1.0, train=True):
        mixture.train(train).zero_grad()
        mixture.auxiliary_scale = scale
        (0 * mixture(x)).sum().backward()
        return mixture.router.weight.grad.clone()

    assert of_router().abs().max() > 1e-6
    torch.testing.assert_close(of_router(0.25), of_router() / 4)
    assert of_router(train=False).abs().max() == 0


def test_experts_divided_by_a_dropout_like_a_feed_forward_network():
    mixture = MixtureOfExperts(replace(PLAIN, dropout=0.5), seed=3)
    x = torch.randn(40, 8)
    assert 0.3 < (mixture(x) == 0).float().mean() < 0.7 and (mixture.eval()(x) != 0).all()


def test_weights_come_from_the_seed_alone():
    torch.manual_seed(0)
    one, other = MixtureOfExperts(SMALL, seed=3), MixtureOfExperts(SMALL, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.router.weight, MixtureOfExperts(SMALL, seed=4).router.weight)
    assert not torch.equal(MixtureOfExperts(SMALL).router.weight, MixtureOfExperts(SMALL).router.weight)


def test_sizes():
    mixture = MixtureOfExperts(SMALL)
    assert sum(p.numel() for p in mixture.parameters()) == mixture_elements(SMALL) == 4 * (8 * 64 + 5 * 8) + 4 * 8
    assert num_expert_parameters(mixture) == mixture_elements(SMALL) - 4 * 8
    assert Router(SMALL).weight.shape == (4, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 5}, r"top_k must be 1 to num_experts \(4\); got 5"),
        ({"top_k": 0}, "got 0"),
        ({"capacity_factor": 0.0}, "capacity_factor must be positive"),
        ({"top_k": 1, "renormalise": True}, "the router learns nothing"),
        ({"balance_coefficient": -0.1}, "balance_coefficient must be 0 or more; got -0.1"),
        ({"z_coefficient": -1.0}, "z_coefficient must be 0 or more"),
        ({"hidden_size": 65}, "must divide hidden_size"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ExpertGPTConfig(**options)
