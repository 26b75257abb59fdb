"""That it is the step of one process stands in `test_parallel_mixture`; here that dropped choices stay dropped."""

from dataclasses import replace

import torch
import torch.distributed as dist

from dtlearn.expert_parallel import ExpertParallelMixture, GatheredMixture
from tests.devices import run_ranks

from .runs import SMALL, TOLERANCE


def both():
    config, found = replace(SMALL, capacity_factor=0.7), []
    for mixture_class in (GatheredMixture, ExpertParallelMixture):
        mixture = mixture_class(config, seed=4).double()
        torch.manual_seed(dist.get_rank())
        x = torch.randn(2, 6, config.hidden_size, dtype=torch.float64, requires_grad=True)
        y = mixture(x)
        y.square().sum().backward()
        assert mixture.routing.num_dropped > 0
        found.append([y, x.grad, *(p.grad for p in mixture.parameters())])
    return max((a - b).abs().max().item() for a, b in zip(*found, strict=True))


def test_it_is_the_real_one_with_drops_too():
    for size in (1, 2, 4):
        assert max(run_ranks(both, size, device="cpu").values) < TOLERANCE


def naive_only():
    mixture = GatheredMixture(SMALL, global_counts=False)
    mixture(torch.randn(2, 3, SMALL.hidden_size)).sum().backward()


def test_it_has_no_all_to_all():
    ops = {event.op for event in run_ranks(naive_only, 2, device="cpu", record=True).record}
    assert ops and not any(op.startswith("all_to_all") for op in ops)
