"""States put together: what a model that is not sharded takes, and what it gives."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks
from dtlearn.zero.state_dicts.reshard import reshard
from dtlearn.zero.state_dicts.sharded import ShardedParameters, load_sharded_state_dict, sharded_state_dict
from dtlearn.zero.state_dicts.whole import (
    consolidate,
    consolidated_state_dict,
    model_state_dict,
    optimizer_state_dict,
)
from tests.zero.state_dicts.ranks_in_one_process import OPTIMIZERS, Model, Rank, plain, plain_steps, ranks, trained


def states(all_ranks):
    return [sharded_state_dict(rank.sharded, rank.optimizer) for rank in all_ranks]


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_plain_model_and_optimizer_go_on(optimizer, num_ranks):
    whole = consolidate(states(trained(num_ranks, optimizer)))
    model, optim = plain(optimizer, 0)
    model.load_state_dict(model_state_dict(whole))
    optim.load_state_dict(optimizer_state_dict(whole))
    plain_steps(model, optim, 2)
    exact = dict(plain(optimizer, 5)[0].named_parameters())
    assert all(torch.equal(parameter, exact[name]) for name, parameter in model.named_parameters())


def test_the_state_is_that_of_torchs_optimizer():
    _, optim = plain("Adam", 3)
    own, torchs = optimizer_state_dict(consolidate(states(trained(3)))), optim.state_dict()
    assert own["param_groups"] == torchs["param_groups"]
    assert own["state"].keys() == torchs["state"].keys()
    for number, of_one in torchs["state"].items():
        assert all(torch.equal(own["state"][number][key], value) for key, value in of_one.items())


def test_a_sharded_model_takes_the_state_of_a_plain_one():
    model, optim = plain("Adam", 3)
    whole = sharded_state_dict(ShardedParameters.of_module(model), optim)
    others = ranks(4, seed=1)
    for rank in others:
        load_sharded_state_dict(reshard([whole], rank.sharded), rank.sharded, rank.optimizer)
        rank.step(2)
    exact = dict(plain("Adam", 5)[0].named_parameters())
    values = model_state_dict(consolidate(states(others)))
    assert all(torch.equal(values[name], parameter) for name, parameter in exact.items())


def test_one_rank_of_several_is_not_a_whole_state():
    state = sharded_state_dict(Rank(3, 1).sharded)
    for convert in (model_state_dict, optimizer_state_dict):
        with pytest.raises(ValueError, match=r"the state of rank 1 of 3: consolidate\(\) puts them all together"):
            convert(state)
    with pytest.raises(ValueError, match=r"consolidate\(\) needs the states of all ranks"):
        consolidate([])


def collected():
    """By destination: what came out on this rank; the last in a group of two ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    own = Rank(size, rank).step(3)
    found = [consolidated_state_dict(own.sharded, own.optimizer, to=to) for to in (0, size - 1)]
    pairs = [dist.new_group([0, 1]), dist.new_group(list(range(2, size)))]
    group = pairs[rank // 2]
    half = Rank(dist.get_world_size(group), dist.get_rank(group)).step(3)
    found.append(consolidated_state_dict(half.sharded, half.optimizer, to=0, group=group))
    return [state and (model_state_dict(state), optimizer_state_dict(state)) for state in found]


def test_the_ranks_collect_it_on_one():
    result = run_ranks(collected, 4, device="cpu", record=True)
    assert [[number for number, state in enumerate(states) if state] for states in result] == [[0, 2], [], [2], [1]]
    model, optim = plain("Adam", 3)
    for values, state in (state for states in result for state in states if state):
        assert all(torch.equal(values[name], parameter) for name, parameter in model.named_parameters())
        assert torch.equal(state["state"][0]["exp_avg"], optim.state_dict()["state"][0]["exp_avg"])
    assert result.record.counts()[1, "gather_object"] == 3


def test_of_module_has_all_parameters_whole():
    model = Model()
    state = sharded_state_dict(ShardedParameters.of_module(model))
    assert (state["stage"], state["num_ranks"]) == (0, 1)
    assert all(torch.equal(state["values"][name], p.flatten()) for name, p in model.named_parameters())
