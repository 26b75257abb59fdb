"""Weights that are kept when their unit is done: every read is an error, and none ends the process."""

import copy
import pickle

import pytest
import torch
from torch import nn

from dtlearn.runtime.errors import RankError
from dtlearn.runtime.run import run_ranks
from dtlearn.zero.stages import sharded_bucket
from dtlearn.zero.stages.unsharded_params import UnshardedParameter, UnshardedView
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from tests.data_parallel.runs import message_of

READS = {
    "add": lambda weight: weight + 1,
    "index": lambda weight: weight[0],
    "item": lambda weight: weight[0, 0].item(),
    "sum": lambda weight: weight.sum(),
    "max": lambda weight: weight.max(dim=0),
    "reshape": lambda weight: weight.reshape(-1),
    "clone": lambda weight: weight.clone(),
    "tolist": lambda weight: weight.tolist(),
    "repr": repr,
    "cat": lambda weight: torch.cat([weight, weight]),
    "copy": lambda weight: torch.empty(weight.shape).copy_(weight),
    "write": lambda weight: weight.detach().zero_(),
    "linear": lambda weight: nn.functional.linear(torch.ones(1, weight.shape[1]), weight),
    "norm": lambda weight: nn.functional.layer_norm(torch.ones(weight.shape[1]), weight.shape[1:], weight=weight[0]),
    "keyword": lambda weight: torch.add(input=torch.ones(()), other=weight),
    "to": lambda weight: weight.to(torch.bfloat16),
    "numpy": lambda weight: weight.detach().numpy(),
    "pickle": pickle.dumps,
    "deepcopy": copy.deepcopy,
    "rows": list,
    "equal": lambda weight: torch.equal(weight, weight),
}
VIEWS = {
    "itself": lambda weight: weight,
    "slice": lambda weight: weight[1:],
    "detached": lambda weight: weight.detach(),
    "data": lambda weight: weight.data,
    "view of a view": lambda weight: weight.view(8, 2)[2:].view(3, 4),
    "chunk": lambda weight: weight.chunk(2)[1],
    "transposed": lambda weight: weight.T,
    "of the rows": lambda weight: next(iter(weight.view(2, 2, 4))),
}


class Keeper(nn.Module):
    """A unit that keeps what it should not."""

    def __init__(self, keeps_array):
        super().__init__()
        self.layer, self.kept, self.keeps_array = nn.Linear(4, 4), {}, keeps_array

    def forward(self, x):
        self.kept = {name: view(self.layer.weight) for name, view in VIEWS.items()}
        self.array = self.layer.weight.detach().numpy() if self.keeps_array else None
        self.copied = self.layer.weight.detach().clone()
        return self.layer(x)


def reads(keeps_array=True):
    """The message of each way to read each view that was kept, after the forward and after the backward pass."""
    torch.manual_seed(0)
    net = nn.Sequential(Keeper(keeps_array), nn.Linear(4, 4))
    model = FullyShardedDataParallel(net, units=(Keeper,))
    outputs = model(torch.ones(1, 4))
    kept, said = net[0].kept, {}
    for when in ("forward", "backward"):
        if when == "backward":
            outputs.sum().backward()
        for name, view in kept.items():
            said |= {(when, name, way): message_of(lambda r=read, v=view: r(v)) for way, read in READS.items()}
    right = torch.equal(torch.from_numpy(net[0].array), net[0].copied) and type(net[0].copied) is torch.Tensor
    return said, right, {name: tuple(view.shape) for name, view in kept.items()}


def test_every_read_of_a_kept_weight_is_an_error():
    for said, right, shapes in run_ranks(reads, 2, device="cpu"):
        assert len(said) == 2 * len(VIEWS) * len(READS)
        assert not [case for case, message in said.items() if "that was kept when its unit was done" not in message]
        assert "RuntimeError: sum() of a weight" in said["forward", "slice", "sum"]
        assert right and shapes["slice"] == (3, 4)  # what it is can still be asked


def unguarded():
    sharded_bucket.UnshardedParameter = nn.Parameter
    reads(keeps_array=False)


def test_without_the_guard_the_process_ends():
    with pytest.raises(RankError, match="SIGSEGV"):
        run_ranks(unguarded, 1, device="cpu")


def test_what_is_no_view_is_a_plain_tensor_with_the_right_gradient():
    torch.manual_seed(0)
    memory = torch.randn(16)
    weight, plain = UnshardedParameter(memory.data.view(4, 4)), nn.Parameter(memory.view(4, 4).clone())
    gradients = []
    for w in (weight, plain):
        upper, lower = w.chunk(2)
        loss = (
            nn.functional.linear(torch.ones(3, 4), w[1:].view(2, 6).view(3, 4)) * upper[0, :3]
        ).sum() + lower.T.sum()
        assert type(loss) is torch.Tensor
        loss.backward()
        gradients.append(w.grad)
    assert torch.equal(*gradients) and type(gradients[0]) is torch.Tensor
    assert type(weight.t()) is UnshardedView and type(weight + 0) is type(weight.clone()) is torch.Tensor


def test_what_is_kept_has_its_values_back_with_the_memory():
    memory = torch.arange(16.0)
    weight = UnshardedParameter(memory.data.view(4, 4))
    row = weight[2]
    size = memory.untyped_storage().nbytes()
    memory.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"Keep a copy, \.clone\(\)"):
        row.sum()
    memory.untyped_storage().resize_(size)
    memory.copy_(torch.arange(16.0) * 2)
    assert row.tolist() == [16, 18, 20, 22] and weight.sum() == 240


def test_what_has_no_elements_has_nothing_to_free():
    weight = UnshardedParameter(torch.empty(0, 4))
    assert weight.sum() == 0 and copy.deepcopy(weight).shape == (0, 4)
