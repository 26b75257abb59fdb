"""Which gradients are whose; that the average is right is seen in `test_parallel_mixture`, with its sabotage."""

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.expert_parallel import (
    Experts,
    average_gradients,
    counted_parameters,
    expert_parameters,
    mixtures,
    other_parameters,
)
from dtlearn.models import next_token_loss
from dtlearn.sharing.clipping import clip_grad_norm_
from tests.devices import run_ranks

from .runs import SMALL, TOLERANCE, batches, divided_model, make_groups, own_part, whole_model


def test_experts_and_others():
    model = whole_model(SMALL)
    experts, others = expert_parameters(model), other_parameters(model)
    assert len(experts) == 8 and all(".experts." in name for name in experts)
    assert (
        experts.keys() | others.keys() == dict(model.named_parameters()).keys() and not experts.keys() & others.keys()
    )
    assert "blocks.0.feed_forward.router.weight" in others
    assert len(expert_parameters(Experts(2, 4, 8))) == 4 and not expert_parameters(nn.Linear(2, 2))


def clipped(everything=False):
    """Norm and clipped gradients beside those of the whole model."""
    groups, (tokens, targets) = make_groups(2, 2), batches(SMALL, 1)[0]
    whole, model = whole_model(SMALL), divided_model(SMALL, groups)
    next_token_loss(whole(tokens), targets).backward()
    expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.01)
    rank = dist.get_rank()
    next_token_loss(model(tokens.chunk(4)[rank]), targets.chunk(4)[rank]).backward()
    average_gradients(model, expert_replicas=groups["dp"])
    counted = None if everything else counted_parameters(model, group=groups["ep"])
    norm = clip_grad_norm_(model.parameters(), 0.01, counted=counted, groups=[groups["ep"]])
    gradients = {name: p.grad for name, p in whole.named_parameters()}
    worst = [(p.grad - own_part(n, gradients[n], p, groups)).abs().max() for n, p in model.named_parameters()]
    return (norm - expected).abs().item(), max(worst).item()


def test_the_norm_counts_each_element_once():
    for of_norm, of_gradients in run_ranks(clipped, 4, device="cpu").values:
        assert of_norm < TOLERANCE and of_gradients < TOLERANCE


def test_and_is_wrong_if_all_count_on_every_rank():
    for of_norm, _ in run_ranks(clipped, 4, True, device="cpu").values:
        assert of_norm > 1e-3


def frozen_and_alone():
    """Frozen experts have no gradient; one rank has nobody to average with."""
    groups, model = make_groups(1, 1), None
    model = divided_model(SMALL, groups)
    for mixture in mixtures(model):
        mixture.experts.requires_grad_(False)
    tokens, targets = batches(SMALL, 1)[0]
    next_token_loss(model(tokens), targets).backward()
    before = {name: p.grad.clone() for name, p in other_parameters(model).items()}
    average_gradients(model, expert_replicas=groups["dp"])
    assert all(torch.equal(before[name], p.grad) for name, p in other_parameters(model).items())
    assert all(p.grad is None for p in expert_parameters(model).values())


def test_frozen_experts_on_one_rank():
    assert not run_ranks(frozen_and_alone, 1, device="cpu", record=True).record.select(op="all_reduce").events
