"""A GPT on dp x ep ranks is the one on one process: every loss, gradient and parameter; and each mistake is found."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.expert_parallel import ExpertParallelMixture, MixtureOfExperts
from dtlearn.runtime.errors import RankError, RanksDisagree
from tests.devices import run_ranks
from tests.stand_in.plant import plant

from .runs import (
    CLASSES,
    CONFIGS,
    OPTIMIZERS,
    ROWS,
    SMALL,
    TOLERANCE,
    batches,
    differences,
    divided_model,
    make_groups,
    on_device,
    on_meshes,
    whole_model,
)

MESHES = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (1, 4)]  # (ep, dp)
CASES = [(config, optimizer, kind) for config in CONFIGS for optimizer in OPTIMIZERS for kind in CLASSES]
PARALLEL, DISPATCH = "dtlearn.expert_parallel.parallel_mixture", "dtlearn.expert_parallel.dispatch"
GRADIENTS = "dtlearn.expert_parallel.gradients"


@pytest.fixture(scope="module")
def runs():
    return run_ranks(on_meshes, 4, MESHES, CASES, device="cpu", timeout=300).values


@pytest.mark.parametrize("case", CASES, ids=", ".join)
@pytest.mark.parametrize("mesh", MESHES, ids="ep{0[0]} dp{0[1]}".format)
def test_it_is_the_step_of_one_process(runs, mesh, case):
    of_ranks = [run[mesh][case] for run in runs[: math.prod(mesh)]]
    assert {what for found in of_ranks for what in found} == {
        "loss",
        "auxiliary loss",
        "experts gradients",
        "other gradients",
        "parameters",
    }
    assert max(value for found in of_ranks for value in found.values()) < TOLERANCE, of_ranks


def test_on_another_device(other_device):
    for run in run_ranks(on_device, 2, device=other_device).values:
        for found in run[2, 1].values():
            assert max(found.values()) < TOLERANCE, found


# What is planted, and what it changes; None: the run itself fails, with this text.
SABOTAGE = {
    "outputs are taken for the tokens in order": (
        (DISPATCH, "index_copy(0, plan.choices, rows)", "index_copy(0, plan.choices.sort().values, rows)"),
        "loss",
    ),
    "rows go back sorted by expert": (
        (PARALLEL, "back = torch.empty_like(out).index_copy(0, order, out)", "back = out"),
        "loss",
    ),
    "rows go to the experts as they came": ((PARALLEL, "self.experts(rows[order],", "self.experts(rows,"), "loss"),
    "experts divided by their own group": (
        (GRADIENTS, "gradient.div_(num_replicas)", "gradient.div_(num_ranks)"),
        "experts gradients",
    ),
    "experts averaged over all ranks": (
        (
            GRADIENTS,
            "expert_parameters(model).values(), num_replicas, expert_replicas)",
            "expert_parameters(model).values(), num_replicas, replicas)",
        ),
        "experts gradients",
    ),
    "others averaged over dp only": (
        (
            GRADIENTS,
            "other_parameters(model).values(), num_replicas, replicas)",
            "other_parameters(model).values(), num_replicas, expert_replicas)",
        ),
        "other gradients",
    ),
    "ranks share the tokens, and not the loss": (
        (PARALLEL, "clamp(min=1), num_replicas", "clamp(min=1), 1"),
        "auxiliary loss",
    ),
}


def sabotaged(planted):
    plant(*planted)
    return differences(SMALL, "SGD", make_groups(2, 2), steps=1)


@pytest.mark.parametrize("fault", SABOTAGE)
def test_each_mistake_is_found(fault):
    planted, what = SABOTAGE[fault]
    found = run_ranks(sabotaged, 4, planted, device="cpu").values
    assert max(of_rank[what] for of_rank in found) > 1e-6, found


def test_backward_that_is_not_reversed_is_an_error():
    planted = ("dtlearn.sharing.uneven", "gradient, ctx.receive, ctx.send", "gradient, ctx.send, ctx.receive")
    with pytest.raises(RankError, match="Count the rows by their rank"):
        run_ranks(sabotaged, 4, planted, device="cpu")


def test_counts_that_are_not_exchanged_are_named():
    planted = (DISPATCH, "arriving = exchange_numbers(going, group=group)", "arriving = going")
    with pytest.raises(RanksDisagree, match="all_to_all_single") as error:
        run_ranks(sabotaged, 4, planted, device="cpu", timeout=60)
    assert "exchange" in str(error.value)


def with_an_empty_rank(leaves=False):
    """Rank 0 has no token; the whole mixture has all of them."""
    if leaves:
        plant(
            PARALLEL,
            "        plan = plan_dispatch(",
            "        if not len(tokens):\n            return tokens\n        plan = plan_dispatch(",
        )
    config, (rank, size) = SMALL, (dist.get_rank(), dist.get_world_size())
    counts = list(range(size))  # tokens of each rank
    tokens = torch.randn(
        sum(counts), config.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    whole = MixtureOfExperts(config, seed=5).double()
    divided = ExpertParallelMixture.from_mixture(whole)
    everyone = tokens.clone().requires_grad_()
    y = whole(everyone)
    (y.square().sum() / len(tokens)).backward()
    own = tokens.split(counts)[rank].clone().requires_grad_()
    out = divided(own)
    (size * out.square().sum() / len(tokens)).backward()  # its mean over ranks is that over tokens
    worst = [(out - y.split(counts)[rank]).abs(), (own.grad / size - everyone.grad.split(counts)[rank]).abs()]
    for name, p in divided.named_parameters():
        total = p.grad.clone()
        if not name.startswith("experts."):
            dist.all_reduce(total)
        worst.append((total / size - divided.local_part(name, dict(whole.named_parameters())[name].grad)).abs())
    return max(distance.max().item() for distance in worst if distance.numel())


def test_a_rank_without_tokens_takes_part():
    assert max(run_ranks(with_an_empty_rank, 4, device="cpu").values) < TOLERANCE


def test_a_rank_without_tokens_that_leaves_is_named():
    with pytest.raises(RanksDisagree, match="rank 0"):
        run_ranks(with_an_empty_rank, 4, True, device="cpu", timeout=60)


def all_to_one_rank():
    """Every token chooses experts 0 and 1, so that rank 1 gets no row."""
    config, rank = SMALL, dist.get_rank()
    whole = MixtureOfExperts(config, seed=5).double()
    whole.router.selection_bias.copy_(torch.tensor([2.0, 2.0, 0.0, 0.0]))
    divided = ExpertParallelMixture.from_mixture(whole)
    x = torch.randn(2, 3, config.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    y = divided(x)
    y.sum().backward()
    assert divided.load.tolist() == [12, 12, 0, 0]
    assert all(p.grad is not None for p in divided.parameters())
    return (y - whole(x)).abs().max().item(), divided.experts.up_weight.grad.abs().sum().item()


def test_experts_that_nobody_chose_have_gradients_of_zero():
    (near, some), (also, none) = run_ranks(all_to_one_rank, 2, device="cpu").values
    assert max(near, also) < TOLERANCE and some > 0 and none == 0


def with_capacity():
    """Places are counted among the tokens of a rank: as one process does that routes each rank's rows by themselves."""
    config = replace(SMALL, capacity_factor=0.6)
    groups = make_groups(2, 1)
    model, whole = divided_model(config, groups, global_counts=False), whole_model(config)
    tokens, _ = batches(config, 1)[0]
    own = tokens.chunk(2)[dist.get_rank()]
    with torch.no_grad():
        out, alone, together = model(own), whole(own), whole(tokens).chunk(2)[dist.get_rank()]
    dropped = model.blocks[0].feed_forward.routing.num_dropped
    return dropped, (out - alone).abs().max().item(), (out - together).abs().max().item()


def test_a_capacity_drops_what_each_ranks_own_routing_drops():
    for dropped, alone, together in run_ranks(with_capacity, 2, device="cpu").values:
        assert dropped > 0 and alone < TOLERANCE
        assert together > 1e-6  # among all tokens other choices are dropped: another model


def own_counts():
    """Auxiliary losses of own and of all ranks' tokens: two ranks that use two experts each."""
    config = replace(SMALL, top_k=1, balance_coefficient=1.0, z_coefficient=0.0)
    x = torch.zeros(1, 4, config.hidden_size)
    for token in range(4):
        x[0, token, 2 * dist.get_rank() + token % 2] = 50.0  # expert 0 or 1 on rank 0, 2 or 3 on rank 1
    losses = []
    for global_counts in (True, False):
        mixture = ExpertParallelMixture(config, global_counts=global_counts)
        with torch.no_grad():
            mixture.router.weight.zero_()[:, :4].copy_(torch.eye(4))
        mixture(x)
        losses.append(mixture.auxiliary_loss.item())
    return losses


def test_own_counts_are_another_loss():
    for together, alone in run_ranks(own_counts, 2, device="cpu").values:
        assert together == pytest.approx(1.0) and alone == pytest.approx(2.0)


def gpt_with_own_counts():
    return differences(SMALL, "SGD", make_groups(2, 1), steps=1, global_counts=False)


def test_with_own_counts_only_the_auxiliary_loss_and_its_gradients_differ():
    for found in run_ranks(gpt_with_own_counts, 2, device="cpu").values:
        assert found["loss"] < TOLERANCE
        assert found["auxiliary loss"] > 1e-4 and found["other gradients"] > 1e-6


def whole_and_back():
    config = SMALL
    whole = MixtureOfExperts(config, seed=5)
    divided = ExpertParallelMixture(config, seed=5)  # the same, from the seed
    full = divided.full_params()
    assert all(torch.equal(full[name], p) for name, p in whole.named_parameters())
    assert divided.experts.up_weight.untyped_storage().nbytes() == divided.experts.up_weight.numel() * 4
    copied = copy.deepcopy(divided)
    assert copied.group is divided.group and copied.experts.up_weight is not divided.experts.up_weight
    before = divided.experts.up_weight
    divided.load_full({name: p + 1 for name, p in full.items()})
    assert divided.experts.up_weight is before and torch.equal(
        divided.full_params()["router.weight"], full["router.weight"] + 1
    )
    with pytest.raises(ValueError, match=r"expected the parameters .*experts.down_bias.* got \['router.weight'\]"):
        divided.load_full({"router.weight": full["router.weight"]})
    with pytest.raises(ValueError, match=r"experts.up_bias is \(4, 32\) in the whole mixture; got \(2, 32\)"):
        divided.load_full(full | {"experts.up_bias": divided.experts.up_bias})
    with pytest.raises(ValueError, match="5 experts cannot be divided among 2 ranks"):
        ExpertParallelMixture(replace(config, num_experts=5))
    assert dtlearn.device().type == "cpu" and ROWS % 2 == 0


def test_whole_parameters_and_refusals():
    run_ranks(whole_and_back, 2, device="cpu")
