"""A checkpoint's second forward pass takes the first one's choices, even where its own would be others."""

import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import dtlearn
from dtlearn.expert_parallel import ExpertParallelMixture, MixtureOfExperts, with_same_routing
from dtlearn.memory import page_checkpoint
from tests.devices import run_ranks

from .runs import SMALL, TOLERANCE

WAYS = {
    "torch's": lambda function, x: checkpoint(function, x, use_reentrant=False),
    "torch's, reentrant": lambda function, x: checkpoint(function, x, use_reentrant=True),
    "the course's page": lambda function, x: page_checkpoint.checkpoint(function, x),
}


def tokens():
    return torch.randn(3, 4, SMALL.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def gradients(mixture, run, between=lambda mixture: None, times=1):
    """The gradients of x and of all parameters, after `run` and backward, with `between` called between the two."""
    x = tokens().to(dtlearn.device()).requires_grad_()
    mixture.zero_grad()
    outputs = [run(mixture, x) for _ in range(times)]
    between(mixture)
    sum(y.square().sum() for y in outputs).backward()
    return [x.grad, *(p.grad.clone() for p in mixture.parameters())]


def other_choices(mixture):
    """Change the router's choices, as a balancing bias that is updated between the two passes would."""
    mixture.router.selection_bias.copy_(torch.tensor([0.0, 3.0, 3.0, 0.0]))


def apart(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_the_second_pass_has_the_first_ones_choices(way):
    mixture = MixtureOfExperts(SMALL, seed=1).double()
    expected = gradients(mixture, lambda module, x: module(x), times=2)
    same = gradients(mixture, lambda module, x: WAYS[way](with_same_routing(module), x), other_choices, times=2)
    assert apart(expected, same) < TOLERANCE


@pytest.mark.parametrize("way", ["torch's, reentrant", "the course's page"])
def test_without_it_gradients_are_wrong(way):
    mixture = MixtureOfExperts(SMALL, seed=1).double()
    expected = gradients(mixture, lambda module, x: module(x))
    assert apart(expected, gradients(mixture, WAYS[way], other_choices)) > 1e-6


def test_without_it_torch_may_see_other_shapes():
    mixture = MixtureOfExperts(SMALL, seed=1).double()
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        gradients(mixture, WAYS["torch's"], other_choices)


def test_two_mixtures_in_one_function_keep_their_order():
    first, second = (MixtureOfExperts(SMALL, seed=seed).double() for seed in (1, 2))
    block = torch.nn.Sequential(first, second)

    def change(_):
        other_choices(first), other_choices(second)

    expected = gradients(block, lambda module, x: module(x))
    same = gradients(block, lambda module, x: WAYS["torch's"](with_same_routing(module), x), change)
    assert apart(expected, same) < TOLERANCE


def test_outside_nothing_is_kept():
    mixture = MixtureOfExperts(SMALL, seed=1).double()
    function = with_same_routing(mixture)
    first = function(tokens())
    other_choices(mixture)
    assert torch.equal(function(tokens()), first)
    assert not torch.equal(mixture(tokens()), first)


def on_ranks():
    """With divided experts, other numbers of rows would travel in the second pass than the first one's peers expect."""
    mixture = ExpertParallelMixture(SMALL, seed=1).double().to(dtlearn.device())
    expected = gradients(mixture, lambda module, x: module(x))
    change = other_choices if dist.get_rank() == 0 else lambda mixture: None  # only one rank's choices would differ
    same = gradients(mixture, lambda module, x: WAYS["torch's"](with_same_routing(module), x), change)
    return apart(expected, same)


def test_with_divided_experts(device):
    assert max(run_ranks(on_ranks, 2, device=device).values) < TOLERANCE
