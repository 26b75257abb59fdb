"""cp beside one process: losses, norms, parameters, alone and with every other axis; and each sum that can be wrong."""

from unittest import mock

import pytest
import torch
import torch.distributed as dist

from dtlearn.hybrid_parallel import HybridGPT, MeshLayout, recipe, replicas
from dtlearn.hybrid_parallel.more_axes import context
from tests.data_parallel.runs import message_of
from tests.devices import run_ranks
from tests.hybrid_parallel.more_axes.runs import compare, difference
from tests.hybrid_parallel.runs import batches, float64, in_one_process, make, trained

RUNS = {
    2: [
        (MeshLayout(cp=2), {"optimizer": "sgd", "tied": True}),
        (MeshLayout(cp=2), {"zero": 1, "context_method": "ulysses"}),
        (MeshLayout(cp=2), {"zero": 2, "context_method": "all-gather", "token_layout": "contiguous"}),
        (MeshLayout(cp=2), {"zero": 3}),
    ],
    4: [
        (MeshLayout(tp=2, cp=2), {"zero": 1, "tied": True}),
        (MeshLayout(tp=2, cp=2), {"sequence_parallel": False, "context_method": "ulysses", "optimizer": "sgd"}),
        (MeshLayout(tp=2, cp=2), {"zero": 2}),
        (MeshLayout(dp=2, cp=2), {"optimizer": "sgd"}),
        (MeshLayout(dp=2, cp=2, order=("dp", "cp", "tp", "pp", "ep")), {"zero": 3, "optimizer": "sgd"}),
        (MeshLayout(pp=2, cp=2), {"tied": True}),
        (MeshLayout(pp=2, cp=2), {"schedule": "zbv", "zero": 1, "tied": True}),
        (MeshLayout(cp=4), {"token_layout": "contiguous"}),
    ],
    8: [
        (MeshLayout(tp=2, cp=2, dp=2), {"zero": 1, "tied": True}),
        (MeshLayout(tp=2, cp=2, dp=2), {"zero": 3, "optimizer": "sgd"}),
        (MeshLayout(tp=2, cp=2, pp=2), {"tied": True}),
    ],
}


@pytest.fixture(scope="module")
def expected():
    return {(name, tied): in_one_process(name, tied) for name in ("sgd", "adamw") for tied in (False, True)}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", RUNS)
def test_every_mesh_with_cp_is_one_process(ranks, expected):
    runs = RUNS[ranks]
    of = [expected[options.get("optimizer", "adamw"), options.get("tied", False)] for _, options in runs]
    compare(runs, of)


def test_on_every_device(expected, other_device):
    compare(RUNS[4][:1], [expected["adamw", True]], device=other_device)


# Sabotage on cp x dp: what is right without cp. Each runs, and gives other numbers.


def over_dp_only(model):
    """This rank's group along dp without cp; all ranks make all."""
    made = {ranks: dist.new_group(list(ranks)) for ranks in model.layout.groups("dp")}
    return made[model.layout.group(model.groups.rank, "dp")]


def counted_over_dp(model):
    group, count = over_dp_only(model), recipe.count_tokens
    return mock.patch.object(recipe, "count_tokens", lambda own, group_=None, **_: count(own, group=group))


def reduced_over_dp(model):
    group, average = over_dp_only(model), replicas.average_over_replicas
    return mock.patch.object(replicas, "average_over_replicas", lambda modules, **_: average(modules, group=group))


def norm_over_replicas_too(model):
    groups = [model.groups.tp, model.groups.pp, model.groups.dp]
    return mock.patch.object(HybridGPT, "norm_groups", lambda _: groups)


def same_tokens_on_all(model):
    halves = lambda rows, parts, place, layout: rows[:, : rows.shape[1] // parts]  # noqa: E731
    return mock.patch.object(recipe, "shard_tokens", halves)


def local_positions(model):
    first = lambda length, parts, rank, layout, device: torch.arange(length // parts, device=device)  # noqa: E731
    return mock.patch.object(context, "token_positions", first)


SABOTAGE = [counted_over_dp, reduced_over_dp, norm_over_replicas_too, same_tokens_on_all, local_positions]


def sabotaged():
    found = {}
    with float64():
        for sabotage in SABOTAGE:
            model = make(MeshLayout(dp=2, cp=2), optimizer="sgd")
            with sabotage(model):
                found[sabotage.__name__] = trained(model)[0]
    return found


def test_what_is_summed_elsewhere_is_found(expected):
    steps, _ = expected["sgd", False]
    result = run_ranks(sabotaged, 4, device="cpu")
    for name in result[0]:
        assert max(difference(rank[name], steps) for rank in result) > 1e-4, name


def refusals():
    model, (tokens, targets) = make(MeshLayout(cp=2)), next(batches(1))
    return {
        "length": message_of(lambda: model.step(tokens[:, :6], targets[:, :6])),
        "context": message_of(lambda: model.step(tokens.repeat(1, 2), targets.repeat(1, 2))),
        "heads": message_of(lambda: make(MeshLayout(tp=1, cp=2), context_method="by hand")),
        "dropout": message_of(lambda: with_dropout()),
    }


def with_dropout():
    sizes = recipe.GPTConfig(num_layers=1, num_heads=2, hidden_size=8, dropout=0.1)
    return HybridGPT(sizes, MeshLayout(cp=2), optimizer_class=torch.optim.SGD)


def test_what_cp_cannot_do_is_refused():
    said = run_ranks(refusals, 2, device="cpu")[0]
    assert (
        "tp=1 times cp=2, of 2 chunks on each cp rank needs a multiple of 4, and there are 6 tokens" in said["length"]
    )
    assert "the sequence has 16 tokens on 2 ranks, but context_length is 8" in said["context"]
    assert "context_method is one of ring, all-gather, ulysses; got 'by hand'" in said["heads"]
    assert "dropout=0.1: a ring would have to draw" in said["dropout"]
