"""Both layers in all their forms beside `nn.Linear`, at t = 1 to 4; their calls; and what a fault changes."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.tensor_parallel.layers.linear import ColumnParallelLinear, RowParallelLinear
from dtlearn.tensor_parallel.mappings import reduce_from_tensor_parallel_region
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups
from tests.tensor_parallel.parity import errors, reference, tensors

B, T, IN, OUT = 2, 12, 24, 12
X, Y = B * T * IN * 8, B * T * OUT * 8  # bytes
# Layer, options, the dims along which its input and output are divided, and its calls with t ranks.
FORMS = {
    "column": (ColumnParallelLinear, {}, None, 2, lambda t: [("all_reduce", X)]),
    "column, overlap": (ColumnParallelLinear, {"overlap": True}, None, 2, lambda t: [("all_reduce", X)]),
    "column, gathered": (
        ColumnParallelLinear,
        {"gather_output": True},
        None,
        None,
        lambda t: [("all_gather_into_tensor", Y // t), ("all_reduce", X)],
    ),
    "column, tokens": (
        ColumnParallelLinear,
        {"sequence_parallel": True},
        1,
        2,
        lambda t: [("all_gather_into_tensor", X // t), ("reduce_scatter_tensor", X)],
    ),
    "row": (RowParallelLinear, {}, 2, None, lambda t: [("all_reduce", Y)]),
    "row, whole input": (
        RowParallelLinear,
        {"input_is_parallel": False},
        None,
        None,
        lambda t: [("all_reduce", Y), ("all_gather_into_tensor", X // t)],
    ),
    "row, tokens": (
        RowParallelLinear,
        {"sequence_parallel": True},
        2,
        1,
        lambda t: [("reduce_scatter_tensor", Y), ("all_gather_into_tensor", Y // t), ("all_reduce", OUT * 8)],
    ),
}


def undivided(bias=True):
    torch.manual_seed(3)
    return nn.Linear(IN, OUT, bias=bias).double().to(dtlearn.device())


class BiasOnEveryRank(RowParallelLinear):
    def forward(self, x):
        return reduce_from_tensor_parallel_region(F.linear(x, self.weight, self.bias), group=self.group)


def every_form():
    linear = undivided()
    x, gradient = tensors((B, T, IN), (B, T, OUT))
    expected = reference(linear, x, gradient)

    def case(group):
        def measured(kind, x_dim, out_dim, reduce=True, **options):
            layer = kind.from_linear(linear, group=group, **options)
            return errors(layer, x, gradient, expected, group, x_dim=x_dim, out_dim=out_dim, reduce=reduce)

        found = {
            name: measured(kind, x_dim, out_dim, **options)
            for name, (kind, options, x_dim, out_dim, _) in FORMS.items()
        }
        dist.barrier(group=group)
        found["without f"] = measured(ColumnParallelLinear, None, 2, input_is_copied=True)
        found["bias on every rank"] = measured(BiasOnEveryRank, 2, None)
        found["bias of the tokens not summed"] = measured(RowParallelLinear, 2, 1, reduce=False, sequence_parallel=True)
        return found

    return in_groups(case)


@pytest.fixture(scope="module")
def forms():
    return run_ranks(every_form, 4, device="cpu", record=True)


def test_parity_on_another_device(other_device):
    test_parity(run_ranks(every_form, 2, device=other_device))


def test_parity(forms):
    for of_sizes in forms:
        for size, found in of_sizes.items():
            for name in FORMS:
                assert set(found[name]) == {"output", "input", "weight", "bias"}
                assert max(found[name].values()) < 1e-12, (size, name, found[name])


def test_sabotage(forms):
    """Each fault shows where it should, and only there."""
    for of_sizes in forms:
        for size, found in of_sizes.items():
            wrong = {name: {key for key, error in found[name].items() if error > 1e-2} for name in found}
            at = {"without f": {"input"}, "bias on every rank": {"output"}, "bias of the tokens not summed": {"bias"}}
            assert {name: keys for name, keys in wrong.items() if keys} == (at if size > 1 else {})


def test_calls_and_bytes(forms):
    for size in (2, 3, 4):
        calls = calls_of(forms.record, size)
        formula = [call for *_, calls_of_form in FORMS.values() for call in calls_of_form(size)]
        assert calls[: calls.index(("barrier", 0))] == formula
    assert [call for call in calls_of(forms.record, 1) if call[0] != "barrier"] == []


def parameters_and_errors():
    rank = dist.get_rank()
    linear = undivided()

    def case(group):
        size = dist.get_world_size(group)
        torch.manual_seed(rank)  # each rank its own: the first rank's counts
        whole = {}
        for kind in (ColumnParallelLinear, RowParallelLinear):
            layer = kind(IN, OUT, group=group)
            whole[kind.__name__] = layer.full_params()
            taken = kind.from_linear(linear, group=group)
            again = kind(IN, OUT, dtype=torch.float64, group=group)
            again.load_full(linear.state_dict())
            for name, parameter in taken.named_parameters():
                assert torch.equal(parameter, again.get_parameter(name))
                assert torch.equal(taken.full_params()[name], linear.get_parameter(name))
                assert parameter.untyped_storage().nbytes() == parameter.nbytes, "nothing of the whole"
            if size > 1:
                with pytest.raises(ValueError, match=r"weight is \(12, 24\) in the whole layer; got \("):
                    taken.load_full(taken.state_dict())  # a part of another split
        linear.bias.requires_grad_(False)
        frozen = RowParallelLinear.from_linear(linear, group=group)
        linear.bias.requires_grad_(True)
        assert frozen.weight.requires_grad and not frozen.bias.requires_grad
        return whole, repr(ColumnParallelLinear(4, 12, group=group)), repr(RowParallelLinear(12, 4, group=group))

    results = in_groups(case)
    with pytest.raises(ValueError, match="10 output features cannot be divided among 4 ranks"):
        ColumnParallelLinear(4, 10)
    with pytest.raises(ValueError, match="10 input features cannot be divided among 4 ranks"):
        RowParallelLinear.from_linear(nn.Linear(10, 4))
    with pytest.raises(ValueError, match="each of 4 ranks takes 2 of 8 input features; got 8"):
        RowParallelLinear(8, 4)(torch.zeros(1, 8))
    with pytest.raises(ValueError, match="each rank takes all 8 input features; got 2"):
        ColumnParallelLinear(8, 4)(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="leave out gather_output"):
        ColumnParallelLinear(4, 8, sequence_parallel=True, gather_output=True)
    with pytest.raises(ValueError, match="gather_again is for tokens that this layer gathers"):
        ColumnParallelLinear(4, 8, gather_again=True)
    with pytest.raises(ValueError, match="overlap is for the all-reduce of f"):
        ColumnParallelLinear(4, 8, sequence_parallel=True, overlap=True)
    with pytest.raises(ValueError, match=r"has 2 parameters; missing: \['bias'\]"):
        ColumnParallelLinear(IN, OUT).load_full({"weight": linear.weight})
    some = dist.new_group([0, 1])
    if rank > 1:
        with pytest.raises(ValueError, match=f"rank {rank} is not in the group that it was given"):
            ColumnParallelLinear(4, 8, group=some)
    copied = copy.deepcopy(ColumnParallelLinear(4, 8, bias=False))
    return results, copied(torch.ones(3, 4)).shape


@pytest.fixture(scope="module")
def parameters():
    return run_ranks(parameters_and_errors, 4, device="cpu", record=True)


def test_the_initial_model_does_not_depend_on_t(parameters):
    torch.manual_seed(0)
    once = parameters[0][0][1][0]  # t = 1
    for results, _ in parameters:
        for whole, *_ in results.values():
            for kind, named in whole.items():
                for name, tensor in named.items():
                    assert torch.equal(tensor, once[kind][name])
    for named in once.values():
        assert 0.9 / IN**0.5 < named["weight"].abs().max() <= 1 / IN**0.5
        assert 0 < named["bias"].abs().max() <= 1 / IN**0.5
    assert sum(op == "broadcast" for op, _ in calls_of(parameters.record, 2)) == 6  # a seed for each drawn layer


def test_a_layer_shows_its_part(parameters):
    (results, shape), _, (on_third, _), _ = parameters
    assert shape == (3, 2)
    _, column, row = on_third[3]
    assert column == (
        "ColumnParallelLinear(weight[out_t, in]: (4, 4) of (12, 4), bias[out_t]: (4,) of (12,), rank 2 of t = 3)"
    )
    assert row == "RowParallelLinear(weight[out, in_t]: (4, 4) of (4, 12), bias[out]: (4,), rank 2 of t = 3)"
    assert "(12, 4) of (12, 4)" in results[1][1]
