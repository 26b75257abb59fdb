from itertools import pairwise

import torch
from torch import nn

from dtlearn.viz.tensor_parallel.module_runs import module_runs


class Half(nn.Linear):
    split_dims = {"weight": 0, "bias": 0}  # noqa: RUF012


def test_modules_with_parameters_are_noted_in_both_passes():
    layer = nn.Sequential(nn.LayerNorm(4), Half(4, 2), nn.GELU(), nn.Linear(2, 4))
    x = torch.ones(3, 4, requires_grad=True)
    with module_runs(layer) as runs:
        layer(x).sum().backward()
    assert [(r.module, r.phase) for r in runs] == [
        ("0", "forward"), ("1", "forward"), ("3", "forward"), ("3", "backward"), ("1", "backward"), ("0", "backward")
    ]  # fmt: skip
    assert all(a.start_ns <= a.end_ns <= b.start_ns for a, b in pairwise(runs))
    assert [run.cut for run in runs[:3]] == ["", "column-parallel", ""]
    assert (runs[1].inputs, runs[1].outputs, runs[1].input_bytes) == ((3, 4), (3, 2), 48)


def test_afterwards_nothing_is_noted():
    layer = nn.Sequential(nn.Linear(2, 2))
    with module_runs(layer) as runs:
        pass
    layer(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert runs == []


class GateUp(nn.Module):
    """Two column-parallel weights in one, two outputs."""

    split_dims = {"weight": 1}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 3, 4))

    def forward(self, x):
        return x @ self.weight[0].T, x @ self.weight[1].T


def test_a_module_with_several_outputs():
    layer = GateUp()
    with module_runs(layer) as runs:
        gate, up = layer(torch.ones(5, 4, requires_grad=True))
        (gate * up).sum().backward()
    assert [(run.phase, run.cut, run.outputs) for run in runs] == [
        ("forward", "column-parallel", (5, 3)), ("backward", "column-parallel", (5, 3))
    ]  # fmt: skip
