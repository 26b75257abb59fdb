"""Saved by some ranks, loaded by others: training goes on as if nothing had happened."""

import copy
import itertools

import pytest
import torch

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.zero.state_dicts.reshard import reshard
from dtlearn.zero.state_dicts.sharded import load_sharded_state_dict, sharded_state_dict
from dtlearn.zero.state_dicts.whole import consolidate, model_state_dict
from tests.zero.state_dicts.ranks_in_one_process import LAYOUTS, OPTIMIZERS, Rank, plain, ranks, trained


def states(all_ranks):
    return [sharded_state_dict(rank.sharded, rank.optimizer) for rank in all_ranks]


def go_on(saved, num_ranks, optimizer, **options):
    """Load what others saved, two more steps, and the whole parameters then."""
    others = ranks(num_ranks, optimizer, seed=1, **options)
    for rank in others:
        load_sharded_state_dict(reshard(saved, rank.sharded), rank.sharded, rank.optimizer)
        rank.step(2)
    return model_state_dict(consolidate(states(others)))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_number_of_ranks_goes_on_as_one_process(optimizer):
    exact = dict(plain(optimizer, 5)[0].named_parameters())
    for before, after in itertools.product([1, 2, 3, 4, 7], repeat=2):
        values = go_on(states(trained(before, optimizer)), after, optimizer)
        assert all(torch.equal(values[name], parameter) for name, parameter in exact.items()), (before, after)


@pytest.mark.parametrize(("before", "after"), list(itertools.permutations(LAYOUTS, 2)))
def test_any_layout_and_stage_goes_on_as_one_process(before, after):
    exact = dict(plain("AdamW", 5)[0].named_parameters())
    values = go_on(states(trained(4, "AdamW", layout=before, stage=1)), 3, "AdamW", layout=after, stage=3)
    assert all(torch.equal(values[name], parameter) for name, parameter in exact.items())


def test_an_optimizer_that_keeps_nothing_of_empty_pieces():
    exact = dict(plain("Adam", 5)[0].named_parameters())
    values = go_on(states(trained(4, empty_have_gradients=False)), 2, "Adam")
    assert all(torch.equal(values[name], parameter) for name, parameter in exact.items())
    values = go_on(states(trained(2)), 4, "Adam", empty_have_gradients=False)
    assert all(torch.equal(values[name], parameter) for name, parameter in exact.items())


def test_sabotage_a_state_that_is_read_from_its_beginning_is_found():
    """What a rank would get that takes its piece's elements from the start of the saved one."""
    exact = dict(plain("Adam", 5)[0].named_parameters())
    saved = states(trained(4))
    shifted = copy.deepcopy(saved)
    for state in shifted:
        for tensors in state["sharded_state"].values():
            tensors.update({key: value.roll(1) for key, value in tensors.items()})
    values = go_on(shifted, 2, "Adam")
    assert max((values[name] - parameter).abs().max() for name, parameter in exact.items()) > 1e-3


def test_options_of_the_groups_come_along():
    first = trained(4)
    for rank in first:
        rank.optimizer.param_groups[1]["lr"] = 0.5  # a schedule
    other = Rank(2, 0)
    load_sharded_state_dict(reshard(states(first), other.sharded), other.sharded, other.optimizer)
    assert [group["lr"] for group in other.optimizer.param_groups] == [0.01, 0.5]


def test_it_reads_its_own_share_and_no_more(tmp_path):
    for number, state in enumerate(states(trained(4))):
        torch.save(state, tmp_path / f"rank{number}.pt")
    saved = [torch.load(tmp_path / f"rank{number}.pt", mmap=True) for number in range(4)]
    rank = Rank(2, 1)
    with StorageLedger() as ledger:
        state = reshard(saved, rank.sharded)
    own, idle = sum(piece.numel() for piece in rank.pieces), rank.pieces[-1].numel()
    steps = 4 * len(state["replicated_state"])
    assert ledger.now == 4 * own + 8 * (own - idle) + steps  # values, and two moments where there were gradients
    assert ledger.peak <= ledger.now + 4  # a step that is compared


def test_what_is_returned_shares_nothing_with_what_was_saved():
    saved = states(trained(2))
    rank = Rank(2, 0)
    state = reshard(saved, rank.sharded)
    for tensors in (state["values"], *state["sharded_state"].values(), *state["replicated_state"].values()):
        for value in tensors.values():
            value.fill_(7.0)
    assert not any((value == 7.0).any() for s in saved for value in s["values"].values())
    assert saved[0]["replicated_state"]["norm.scale"]["step"] == 3


def with_step(saved, rank, step):
    saved[rank]["replicated_state"]["last.weight"]["step"].fill_(step)
    return saved


def without_moment(saved, rank):
    del saved[rank]["sharded_state"]["first.weight"]["exp_avg"]
    return saved


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: [], "needs the states of all ranks that saved; got none"),
        (lambda s: s[:3], r"4 ranks saved, and these are the states of ranks \[0, 1, 2\]: each is needed, once"),
        (lambda s: [*s[:3], s[2]], r"of ranks \[0, 1, 2, 2\]: each is needed, once"),
        (lambda s: [*s[:3], states(trained(2))[1]], "states of two runs: one was saved by stage 3 on 4 ranks, one by"),
        (lambda s: [*s[:3], states(trained(4, stage=1))[3]], r"stage 1 on 4"),
        (lambda s: [*s[:3], {**s[3], "groups": []}], "states of two runs: the groups of the optimizers"),
        (
            lambda s: with_step(s, 2, 9),
            r"'step' of last.weight is 3.0 on rank 3 and 9.0 on a rank before it",
        ),
        (lambda s: without_moment(s, 0), "rank 0 saved no 'exp_avg' of first.weight, and others did"),
        (lambda s: [*s[:3], {"model": {}}], "is not that of sharded parameters"),
    ],
)
def test_states_that_do_not_belong_together_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        reshard(change(states(trained(4))), Rank(2, 0).sharded)
