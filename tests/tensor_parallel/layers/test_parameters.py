"""Which dims are divided, in a model of divided and of other layers; and its notation."""

import copy

import torch
from torch import nn

from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.layers.linear import ColumnParallelLinear, RowParallelLinear
from dtlearn.tensor_parallel.layers.parameters import full_params, in_notation, split_dims


def test_notation():
    assert in_notation("weight", ("out", "in"), 0) == "weight[out_t, in]"
    assert in_notation("bias", ("out",), None) == "bias[out]"


def model():
    up, down = ColumnParallelLinear(4, 6), RowParallelLinear(6, 4)
    again = ColumnParallelLinear(4, 6, bias=False)
    again.weight = up.weight  # tied
    return nn.Sequential(nn.LayerNorm(4), up, down, again)


def of_a_model():
    parallel = copy.deepcopy(model())  # what a layer says of itself is in its class: a copy has it too
    return split_dims(parallel), {name: tensor.shape for name, tensor in full_params(parallel).items()}


def test_dims_and_whole_parameters_by_name():
    dims, shapes = run_ranks(of_a_model, 2, device="cpu")[1]
    assert dims["0.weight"] is None and dims["2.bias"] is None
    assert dims["1.weight"] == dims["1.bias"] == dims["3.weight"] == 0 and dims["2.weight"] == 1
    assert shapes == {"0.weight": (4,), "0.bias": (4,)} | {
        "1.weight": (6, 4),
        "1.bias": (6,),
        "2.weight": (4, 6),
        "2.bias": (4,),
    }, "a tied one once"
    assert split_dims(nn.Linear(2, 2)) == {"weight": None, "bias": None}
    assert isinstance(shapes["1.weight"], torch.Size)
