import pytest
import torch
from torch import nn

from dtlearn.viz.tensor_parallel.local_weights import LocalWeight, cut_weights, local_weights, num_held
from tests.viz.tensor_parallel.layers import WEIGHTS


class Half(nn.Linear):
    """The part of a column-parallel layer."""

    split_dims = {"weight": 0, "bias": 0}  # noqa: RUF012


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_size = 2
        self.query = Half(8, 4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(8, 4)
        self.attention = Heads()
        self.up = Half(8, 4, bias=False)


def test_what_a_rank_holds_is_read_from_its_layers():
    assert local_weights(Model()) == [
        LocalWeight("tokens.weight", (8, 4), None, is_table=True),
        LocalWeight("attention.query.weight", (4, 8), 0, head_size=2),
        LocalWeight("attention.query.bias", (4,), 0, head_size=2),
        LocalWeight("up.weight", (4, 8), 0),
    ]
    assert [w.name for w in local_weights(Model(), only=("up", "tokens"))] == ["tokens.weight", "up.weight"]


def test_several_weights_in_one_parameter_and_copies():
    class Fused(nn.Module):
        split_dims = {"weight": 1}  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 4, 8))

    key = Half(8, 4, bias=False)
    key.num_copies = 2
    model = nn.ModuleDict({"gate_up": Fused(), "key": key})
    assert local_weights(model) == [
        LocalWeight("gate_up[0].weight", (4, 8), 0),
        LocalWeight("gate_up[1].weight", (4, 8), 0),
        LocalWeight("key.weight", (4, 8), 0, copies=2),
    ]
    assert local_weights(Fused())[1] == LocalWeight("weight[1]", (4, 8), 0)


def test_the_parts_of_all_ranks_make_the_whole():
    whole = {weight.name: weight for weight in cut_weights([WEIGHTS, WEIGHTS])}
    assert whole["attention.query.weight"].shape == (8, 8)
    assert whole["attention.query.weight"].sizes == (4, 4)
    assert whole["attention.output.weight"].shape == (8, 8)
    assert whole["attention.output.bias"].shape == (8,) and whole["attention.output.bias"].sizes == ()
    assert num_held([WEIGHTS, WEIGHTS]) == (32 + 32 + 4 + 32 + 8 + 8, 64 + 64 + 8 + 64 + 8 + 8)


def test_copies_are_counted_once():
    (key,) = cut_weights([[LocalWeight("key.weight", (2, 8), 0, 2, copies=2)]] * 4)
    assert key.shape == (4, 8) and key.sizes == (2, 2, 2, 2)


def test_ranks_have_to_fit_together():
    with pytest.raises(ValueError, match="no rank's parameters"):
        cut_weights([])
    with pytest.raises(ValueError, match="rank 1 has the parameters"):
        cut_weights([WEIGHTS, WEIGHTS[1:]])
    others = [LocalWeight("a", (2, 8), 0)], [LocalWeight("a", (2, 6), 0)]
    with pytest.raises(ValueError, match=r"a: rank 1 holds \(2, 6\), divided along dim 0; rank 0 holds \(2, 8\)"):
        cut_weights(others)
