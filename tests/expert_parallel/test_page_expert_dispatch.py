"""The page beside the real mixture, several steps on 1, 2 and 4 ranks; and with each of its steps left out."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.expert_parallel import ExpertGPTConfig, ExpertParallelMixture
from dtlearn.expert_parallel.page_expert_dispatch import DispatchedExperts
from tests.devices import run_ranks
from tests.sharing.groups import in_groups
from tests.stand_in.plant import plant

CONFIG = ExpertGPTConfig(hidden_size=8, num_heads=2, num_experts=4, top_k=2, balance_coefficient=0.0)
PAGE = "dtlearn.expert_parallel.page_expert_dispatch"
STEPS, TOLERANCE = 3, 1e-12
SABOTAGE = {
    "outputs in the order of experts": ("index_copy(0, order, rows)", "index_copy(0, order.sort().values, rows)"),
    "blocks to other experts": ("zip(self.experts, inputs", "zip(self.experts[::-1], inputs"),
    "outputs back by expert": (
        "for i in range(num_ranks) for e in range(own)]",
        "for e in range(own) for i in range(num_ranks)]",
    ),
    "weights not renormalised": ("weights / weights.sum(-1, keepdim=True)", "weights"),
}


class OneExpert(nn.Module):
    """One of the real mixture's experts, as a network of its own."""

    def __init__(self, experts, number):
        super().__init__()
        self.up_weight, self.up_bias, self.down_weight, self.down_bias = (
            nn.Parameter(p.detach()[number].clone()) for p in experts.parameters()
        )

    def forward(self, x):
        return F.linear(F.gelu(F.linear(x, self.up_weight, self.up_bias)), self.down_weight, self.down_bias)


def models(group):
    real = ExpertParallelMixture(CONFIG, group=group, global_counts=False, seed=6).double().to(dtlearn.device())
    with torch.no_grad():
        real.router.weight.mul_(30)
    experts = [OneExpert(real.experts, number) for number in range(real.local_experts)]
    return real, DispatchedExperts(real.router.weight, experts, CONFIG.top_k, group=group)


def train(model, group, empty=False):
    """Losses, gradients of the input, and parameters at the end, with experts stacked."""
    rank, trace = dist.get_rank(group), []
    stepper = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(10 * step + rank)
        n = 0 if empty and rank == 0 else 5 + rank  # uneven
        tokens = torch.randn(n, CONFIG.hidden_size, dtype=torch.float64, generator=generator).to(dtlearn.device())
        tokens.requires_grad_()
        loss = model(tokens).square().sum()
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        trace += [loss.detach(), tokens.grad]
    if isinstance(model, DispatchedExperts):
        stacked = zip(*(expert.parameters() for expert in model.experts), strict=True)
        return [*trace, model.router.detach(), *(torch.stack(list(p)).detach() for p in stacked)]
    return [*trace, *(p.detach() for p in model.parameters())]


def apart(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True) if a.numel())


def beside_the_real_one(group):
    found = []
    for empty in (False, True):
        real, page = models(group)
        found.append(apart(train(real, group, empty), train(page, group, empty)))
    return max(found)


def every_size(sizes=(1, 2, 4), planted=None):
    if planted is not None:
        plant(PAGE, *planted)
    return in_groups(beside_the_real_one, sizes)


def test_it_is_the_real_one_also_with_a_rank_without_tokens():
    found = run_ranks(every_size, 4, device="cpu").values
    assert set(found[0]) == {1, 2, 4} and max(value for of_rank in found for value in of_rank.values()) < TOLERANCE


def test_on_another_device(other_device):
    assert max(of_rank[2] for of_rank in run_ranks(every_size, 2, (2,), device=other_device).values) < TOLERANCE


@pytest.mark.parametrize("fault", SABOTAGE)
def test_with_a_mistake_it_is_not(fault):
    found = run_ranks(every_size, 2, (2,), SABOTAGE[fault], device="cpu").values
    assert max(of_rank[2] for of_rank in found) > 1e-4
