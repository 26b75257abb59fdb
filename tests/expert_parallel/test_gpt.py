from dataclasses import replace

import pytest
import torch

from dtlearn.expert_parallel import (
    ExpertGPTConfig,
    ExpertParallelMixture,
    MixtureOfExperts,
    expert_gpt,
    mixtures,
    put_mixtures,
)
from dtlearn.models import GPT, next_token_loss
from dtlearn.models.reference import num_parameters
from dtlearn.pipeline_parallel.split_model import split_gpt
from dtlearn.tensor_parallel import ParallelGPT
from tests.devices import run_ranks

from .runs import CONFIGS, SMALL, TOLERANCE


@pytest.mark.parametrize("config", [*CONFIGS.values(), ExpertGPTConfig()], ids=[*CONFIGS, "default"])
def test_number_of_parameters(config):
    assert num_parameters(expert_gpt(config, seed=0)) == config.num_parameters


def test_what_is_no_mixture_is_the_plain_gpt():
    torch.manual_seed(7)
    plain, state = dict(GPT(SMALL).named_parameters()), torch.get_rng_state()
    own = dict(expert_gpt(SMALL, seed=7).named_parameters())
    assert torch.equal(torch.get_rng_state(), state)  # left alone
    alike = [name for name in own if "feed_forward." not in name]
    assert len(alike) == len(own) - 2 * 5 and all(torch.equal(plain[name], own[name]) for name in alike)


def test_each_block_has_other_experts_and_residual_branches_are_scaled():
    config = replace(SMALL, hidden_size=64)
    first, second = mixtures(expert_gpt(config, seed=7))
    assert not torch.equal(first.experts.up_weight, second.experts.up_weight)
    assert first.experts.up_weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert first.experts.down_weight.std().item() == pytest.approx(0.02 / 2, rel=0.05)  # 2 blocks, 4 branches
    assert not torch.equal(first.experts.up_weight[0], first.experts.up_weight[1])


def test_it_learns_and_its_router_too():
    torch.manual_seed(0)
    model = expert_gpt(SMALL, seed=7)
    stepper, tokens = torch.optim.AdamW(model.parameters(), lr=0.01), torch.randint(16, (4, 6))
    before, losses = mixtures(model)[0].router.weight.detach().clone(), []
    for _ in range(30):
        stepper.zero_grad()
        loss = next_token_loss(model(tokens), tokens)
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2 and (mixtures(model)[0].router.weight - before).abs().max() > 1e-3


def test_a_pipelines_stage_draws_its_own_blocks_alone():
    whole = expert_gpt(SMALL, seed=7)
    torch.manual_seed(7)
    last = split_gpt(GPT(SMALL), (0, 2, 4))[1]  # the second block, and the head
    put_mixtures(last, SMALL, seed=7, mixture_class=MixtureOfExperts)
    (own,) = mixtures(last)
    other = mixtures(whole)[1]
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), other.parameters(), strict=True))


def test_format_is_kept():
    model = GPT(SMALL).double()
    put_mixtures(model, SMALL, seed=7, mixture_class=MixtureOfExperts)
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def beside_tensor_parallel():
    """Attention on tp = 2, and the whole mixture on both: tp ranks have the same tokens."""
    whole = expert_gpt(SMALL, seed=7).double()
    model = ParallelGPT(SMALL, seed=7).double()
    alone = torch.distributed.new_group([torch.distributed.get_rank()], use_local_synchronization=True)
    put_mixtures(model, SMALL, seed=7, group=alone, replicas=alone)
    tokens = torch.randint(16, (3, 6), generator=torch.Generator().manual_seed(1))
    model.loss(tokens, tokens).backward()
    next_token_loss(whole(tokens), tokens).backward()
    pairs = zip(mixtures(model), mixtures(whole), strict=True)
    return max(
        (a.grad - b.grad).abs().max().item()
        for m, w in pairs
        for a, b in zip(m.parameters(), w.parameters(), strict=True)
    )


def test_in_a_tensor_parallel_gpt():
    assert max(run_ranks(beside_tensor_parallel, 2, device="cpu").values) < TOLERANCE


def forward_only():
    with torch.no_grad():
        tokens = torch.arange(12).view(2, 6)
        divided = expert_gpt(SMALL, seed=7, mixture_class=ExpertParallelMixture)
        return (divided(tokens) - expert_gpt(SMALL, seed=7)(tokens)).abs().max().item()


def test_divided_from_the_seed_it_is_the_same_model():
    assert max(run_ranks(forward_only, 2, device="cpu").values) < 1e-5
