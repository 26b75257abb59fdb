"""Sums over the ranks of a step: the mean of all tokens, gradients, and averaging in place of summing."""

import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.context_parallel import reduce_context_parallel_gradients, reported_mean, token_mean
from dtlearn.data_parallel.samples.token_mean import count_tokens, scale_for_averaging
from tests.devices import run_ranks
from tests.sharing.groups import in_groups

COUNTS = [3, 0, 5, 1]  # tokens that count on each rank


def losses(rank):
    start = sum(COUNTS[:rank])
    return torch.arange(start, start + COUNTS[rank], dtype=torch.float64, device=dtlearn.device()) + 1


def mean_of_all():
    def case(group):
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        scale = torch.ones((), dtype=torch.float64, device=dtlearn.device(), requires_grad=True)
        own = (scale * losses(rank)).sum()
        term = token_mean(own, COUNTS[rank], group=group)
        term.backward()
        summed = scale.grad.clone()
        dist.all_reduce(summed, group=group)
        # The other way: a loss scaled for DDP's mean over the same ranks.
        scaled = scale_for_averaging(
            own.detach(), count_tokens(COUNTS[rank], device=own.device, group=group), group=group
        )
        dist.all_reduce(scaled, group=group)
        expected = torch.cat([losses(r) for r in range(size)]).mean().item()
        return reported_mean(term, group=group), summed.item(), scaled.item() / size, expected

    return in_groups(case)


def no_token_at_all():
    return reported_mean(token_mean(torch.zeros(()), 0)), token_mean(torch.ones(()), torch.tensor(2)).item()


def reduced():
    def case(group):
        rank = dist.get_rank(group)
        model = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(3, 1).double(), "frozen": nn.Linear(2, 2)})
        model["frozen"].requires_grad_(False)
        for parameter in [*model["a"].parameters(), *model["b"].parameters()]:
            parameter.grad = torch.full_like(parameter, rank + 1.0)
        held = [p.grad for p in model["a"].parameters()]
        reduce_context_parallel_gradients(model, group=group)
        found = {float(x) for p in model.parameters() if p.grad is not None for x in p.grad.flatten()}
        return found, all(a is b.grad for a, b in zip(held, model["a"].parameters(), strict=True))

    return in_groups(case)


def test_terms_add_up_to_the_mean_of_all_tokens(device):
    for of_sizes in run_ranks(mean_of_all, 4, device=device):
        for reported, summed, averaged, expected in of_sizes.values():
            assert abs(reported - expected) < 1e-12 and abs(summed - expected) < 1e-12
            assert abs(averaged - expected) < 1e-12


def test_no_token_at_all_is_no_nan():
    assert run_ranks(no_token_at_all, 2, device="cpu").values == [(0.0, 0.25)] * 2


def test_gradients_are_summed_in_place_in_one_call_for_each_dtype():
    run = run_ranks(reduced, 4, device="cpu", record=True)
    for of_sizes in run.values:
        for size, (found, same) in of_sizes.items():
            assert found == {sum(range(size + 1))} and same
    for size in (1, 2, 3, 4):
        group = ",".join(map(str, range(size)))
        calls = [(e.op, e.nbytes) for e in run.record.select(rank=0) if e.group == group]
        assert calls == ([("all_reduce", 9 * 4), ("all_reduce", 4 * 8)] if size > 1 else [])
