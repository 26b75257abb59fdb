"""Whole states from pieces and back, without ranks: `test_zero1.py` does it on them."""

import pytest
import torch

from dtlearn.zero import plan_flat, plan_whole_tensors
from dtlearn.zero.state_dicts.plain_optimizer import assemble, on_cpu, own_part

SHAPES = [(3, 4), (), (5,), (0, 2), (7,)]
PARAMETERS = [torch.zeros(shape) for shape in SHAPES]
SIZES = [parameter.numel() for parameter in PARAMETERS]


def plain(numbers=range(5)):
    """As Adam keeps it; the last parameter has had no gradient."""
    state = {
        number: {"step": torch.tensor(3.0), "exp_avg": torch.randn(SHAPES[number]), "note": "kept"}
        for number in numbers
        if number != 4 and SIZES[number]
    }
    return {"state": state, "param_groups": [{"lr": 0.1, "params": list(numbers)}]}


def pieces_of(partition, rank):
    slices = {piece.parameter: piece.numel for piece in partition.slices(rank)}
    return [torch.zeros(slices.get(number, 0)) for number in range(len(SHAPES))]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 30])
def test_there_and_back(num_ranks):
    torch.manual_seed(0)
    partition, whole = plan_flat(SIZES, num_ranks), plain()
    owners = [partition.owners(number) for number in range(len(SHAPES))]
    parts = []
    for rank in range(num_ranks):
        pieces = pieces_of(partition, rank)
        part = own_part(whole, PARAMETERS, pieces, owners, rank)
        assert part["param_groups"] == whole["param_groups"]
        for number, values in part["state"].items():
            assert values["exp_avg"].shape == pieces[number].shape and values["step"].shape == ()
            assert values["exp_avg"].untyped_storage().nbytes() == values["exp_avg"].nbytes  # nothing of the whole
        parts.append(part["state"])
    back = assemble([on_cpu(part) for part in parts], PARAMETERS, owners)
    assert back.keys() == whole["state"].keys()
    for number, values in back.items():
        assert values.keys() == whole["state"][number].keys() and values["note"] == "kept"
        assert torch.equal(values["exp_avg"], whole["state"][number]["exp_avg"]) and values["step"] == 3


def test_numbers_of_the_state_are_those_of_its_groups():
    whole, partition = plain(), plan_flat(SIZES, 1)
    renamed = {
        "state": {n + 10: v for n, v in whole["state"].items()},
        "param_groups": [{"params": list(range(10, 15))}],
    }
    owners = [partition.owners(number) for number in range(len(SHAPES))]
    part = own_part(renamed, PARAMETERS, pieces_of(partition, 0), owners, 0)
    assert part["state"].keys() == {10, 11, 12}


def test_whole_tensors_may_keep_anything():
    """As Adafactor: a row and a column for a matrix."""
    partition = plan_whole_tensors(SIZES, 2)
    owners = [partition.owners(number) for number in range(len(SHAPES))]
    state = {0: {"row": torch.ones(3, 1), "column": torch.ones(1, 4), "step": torch.tensor(1.0)}}
    whole = {"state": state, "param_groups": [{"params": list(range(len(SHAPES)))}]}
    parts = []
    for rank in range(2):
        pieces = [
            p if len(owners[n]) == 1 and owners[n][0].rank == rank else p.new_empty(0) for n, p in enumerate(PARAMETERS)
        ]
        parts.append(own_part(whole, PARAMETERS, pieces, None, rank)["state"])
    assert sorted(map(len, parts)) == [0, 1]
    back = assemble(parts, PARAMETERS, owners)
    assert {key: tuple(value.shape) for key, value in back[0].items()} == {"row": (3, 1), "column": (1, 4), "step": ()}


def test_what_does_not_fit():
    partition = plan_flat(SIZES, 2)
    owners = [partition.owners(number) for number in range(len(SHAPES))]
    for rank in range(2):
        pieces = pieces_of(partition, rank)
        with pytest.raises(ValueError, match="this state is of 4 parameters, and the optimizer has 5"):
            own_part(plain(range(4)), PARAMETERS, pieces, owners, rank)
        shard = plain()
        shard["state"][0]["exp_avg"] = torch.zeros(12)
        with pytest.raises(
            ValueError, match=r"exp_avg of parameter 0 has the shape \(12,\), and the parameter \(3, 4\)"
        ):
            own_part(shard, PARAMETERS, pieces, owners, rank)
