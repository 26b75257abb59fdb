"""What a rank saves, and that it goes on from there; states of others are refused in words."""

import copy
import io

import pytest
import torch
from torch import nn

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.zero.state_dicts.sharded import ShardedParameters, load_sharded_state_dict, sharded_state_dict
from tests.zero.state_dicts.ranks_in_one_process import LAYOUTS, OPTIMIZERS, Model, Rank, ranks, trained


def states(all_ranks):
    return [sharded_state_dict(rank.sharded, rank.optimizer) for rank in all_ranks]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_rank_goes_on_from_what_it_saved(optimizer, layout):
    first = trained(3, optimizer, layout=layout)
    saved = states(first)
    before = copy.deepcopy(saved)
    others = ranks(3, optimizer, layout=layout, seed=1)
    for rank, state in zip(others, saved, strict=True):
        load_sharded_state_dict(state, rank.sharded, rank.optimizer)
        rank.step(2)
    for rank, other in zip(first, others, strict=True):
        rank.step(2)
        for piece, loaded in zip(rank.pieces, other.pieces, strict=True):
            assert torch.equal(piece, loaded)
    # Nothing that happens afterwards changes a state.
    for state, copied in zip(saved, before, strict=True):
        assert all(torch.equal(state["values"][name], copied["values"][name]) for name in copied["values"])
        for name, tensors in copied["sharded_state"].items():
            assert all(torch.equal(state["sharded_state"][name][key], value) for key, value in tensors.items())


def test_it_is_plain_data():
    file = io.BytesIO()
    (state,) = states([Rank(3, 1).step(2)])
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file)  # weights only
    assert loaded["pieces"] == state["pieces"] and loaded["groups"] == state["groups"]
    assert state["pieces"]["first.weight"] == {"shape": [5, 4], "start": 16, "stop": 20}
    assert state["pieces"]["idle.weight"] == {"shape": [7], "start": 0, "stop": 0}
    assert list(state["sharded_state"]["norm.scale"]) == ["exp_avg", "exp_avg_sq"]
    assert list(state["replicated_state"]["norm.scale"]) == ["step"]
    assert "idle.weight" not in state["sharded_state"]  # it never had a gradient
    assert [group["params"] for group in state["groups"]] == [
        ["last.weight", "first.weight"],
        ["norm.scale", "first.bias", "idle.weight"],
    ]


def test_padding_is_not_saved():
    saved = states(trained(3))
    assert sum(tensor.numel() for state in saved for tensor in state["values"].values()) == 48
    assert LAYOUTS["flat"](5).padding == 2
    assert sum(t.numel() for state in states(trained(5)) for t in state["values"].values()) == 48


def test_a_state_is_a_copy_of_the_shard_and_no_more():
    rank = Rank(3, 0).step()
    with StorageLedger() as ledger:
        state = sharded_state_dict(rank.sharded, rank.optimizer)
    assert state["rank"] == 0
    own = sum(piece.numel() for piece in rank.pieces)
    assert own == 16
    assert ledger.peak == ledger.now == 12 * own + 4 * 4  # values, two moments; "step" of four pieces


def test_whole_tensors_keep_their_shapes_and_a_scalar_its_moment():
    model = nn.Module()
    model.scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.Adam(model.parameters())
    model.scale.grad = torch.tensor(1.0)
    optimizer.step()
    state = sharded_state_dict(ShardedParameters.of_module(model), optimizer)
    assert state["sharded_state"]["scale"]["exp_avg"].shape == (1,)
    assert list(state["replicated_state"]["scale"]) == ["step"]
    load_sharded_state_dict(state, ShardedParameters.of_module(model), optimizer)
    assert optimizer.state[model.scale]["exp_avg"].shape == ()


def test_values_alone():
    saved, other = Rank(3, 1).step(2), Rank(3, 1, seed=1)
    state = sharded_state_dict(saved.sharded)
    assert state["groups"] == [] and not state["sharded_state"]
    load_sharded_state_dict(state, other.sharded)
    assert all(map(torch.equal, saved.pieces, other.pieces))
    with pytest.raises(ValueError, match=r"in the state they are \[\]: make the same groups"):
        load_sharded_state_dict(state, other.sharded, other.optimizer)


def test_stages_with_whole_parameters_are_told_when_pieces_were_loaded():
    rank, calls = Rank(2, 0, stage=1), []
    sharded = ShardedParameters(
        rank.sharded.names, rank.sharded.shapes, rank.pieces, rank.partition, 0, 1, lambda: calls.append(1)
    )
    load_sharded_state_dict(sharded_state_dict(sharded), sharded)
    assert calls == [1]


def changed(**values):
    def change(state):
        return {**state, **values}

    return change


def without(name):
    return lambda state: {**state, "pieces": {n: p for n, p in state["pieces"].items() if n != name}}


def with_piece(name, **values):
    return lambda state: {**state, "pieces": {**state["pieces"], name: {**state["pieces"].get(name, {}), **values}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(num_ranks=4), r"saved by stage 3 on 4 ranks; this is stage 3 on 3\. Give .* to reshard\(\)"),
        (changed(stage=1), r"saved by stage 1 on 3 ranks; this is stage 3 on 3\. Give .* to reshard\(\)"),
        (changed(rank=2), "the state of rank 2, and this is rank 1: each rank loads its own"),
        (
            with_piece("norm.scale", start=0, stop=0),
            r"has elements 0 to 1 of norm.scale, .* 0 to 0: the buckets or units were",
        ),
        (without("norm.scale"), "the state has no norm.scale: it is of another model"),
        (with_piece("head", shape=[3], start=0, stop=3), "the state has head, which this model does not have"),
        (with_piece("norm.scale", shape=[2]), r"norm.scale is \(1,\) here and \(2,\) in the state"),
        (changed(groups=[]), r"groups are \[.*; in the state they are \[\]: make the same groups"),
        (lambda state: {"state": {}, "param_groups": []}, r"sharded_state_dict\(\) makes one"),
    ],
)
def test_the_state_of_something_else_is_refused_and_nothing_is_changed(change, message):
    saved, other = Rank(3, 1).step(2), Rank(3, 1, seed=1).step()
    before = copy.deepcopy(sharded_state_dict(other.sharded, other.optimizer))
    with pytest.raises(ValueError, match=message):
        load_sharded_state_dict(
            change(sharded_state_dict(saved.sharded, saved.optimizer)), other.sharded, other.optimizer
        )
    after = sharded_state_dict(other.sharded, other.optimizer)
    assert all(torch.equal(before["values"][name], value) for name, value in after["values"].items())
    assert torch.equal(
        before["sharded_state"]["norm.scale"]["exp_avg"], after["sharded_state"]["norm.scale"]["exp_avg"]
    )


def test_an_optimizer_that_was_built_before_sharding_is_refused():
    rank, model = Rank(3, 1), Model()
    with pytest.raises(ValueError, match=r"group 0 has a tensor that is none of the pieces: it was built before"):
        sharded_state_dict(rank.sharded, torch.optim.Adam(model.parameters()))


def test_state_that_cannot_be_cut_is_refused():
    rank = Rank(1, 0, layout="whole tensors")
    optimizer = torch.optim.Adafactor(rank.pieces)
    for piece in rank.pieces:
        piece.grad = torch.ones_like(piece)
    optimizer.step()
    with pytest.raises(ValueError, match=r"keeps 'row_var' of first.weight as .*neither one value for each element"):
        sharded_state_dict(rank.sharded, optimizer)
