"""A second pass computes what the first one did, and changes nothing more: random numbers and buffers count once."""

import pytest
import torch
from torch import nn

from dtlearn.pipeline_parallel.runner.recomputation import RecomputingStage, random_states, with_random_states
from dtlearn.pipeline_parallel.runner.stage import PipelineStage

CPU = torch.device("cpu")


def test_the_same_numbers_once_more():
    states = random_states(CPU)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    following = torch.rand(3)
    torch.manual_seed(1)
    with with_random_states(states, CPU):
        assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(torch.rand(3), following)
    assert sum(state.nbytes for state in states) == 5056


class Counter(nn.Module):
    """Its outputs depend on a buffer that it replaces."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.weight * self.calls


CHANGING = {
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "instance norm": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.Flatten()
    ),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
    "replaced": Counter,
    "none": lambda: nn.Linear(4, 4),
}


@pytest.mark.parametrize("name", CHANGING)
def test_buffers_count_once_and_gradients_are_those_without_a_second_pass(name):
    states = []
    for kind in (PipelineStage, RecomputingStage):
        torch.manual_seed(0)
        stage = kind(CHANGING[name]())
        x = torch.randn(3, 6, 4)
        for number, part in enumerate(x):
            stage.forward(number, part.clone())
        back = [stage.backward(number, x[number]) for number in range(3)]
        module = stage.module
        states.append([*back, *module.buffers(), *(parameter.grad for parameter in module.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_only_buffers_that_change_are_kept():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    module.register_buffer("mask", torch.ones(100))
    stage = RecomputingStage(module)
    stage.forward(0, torch.randn(3, 4))
    assert set(stage.live[0].buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    module.eval()
    stage.forward(1, torch.randn(3, 4))
    assert not stage.live[1].buffers


@pytest.mark.parametrize("is_first", [True, False])
def test_inputs_that_are_changed_in_place_are_refused(is_first):
    stage = RecomputingStage(nn.Sequential(nn.Tanh(), nn.Linear(3, 3)), is_first=is_first)
    stage.forward(0, torch.ones(2, 3))
    stage.module[0] = nn.ELU(inplace=True)
    with pytest.raises(ValueError, match=r"that is recomputed changed its inputs in place.*Take inplace=False"):
        stage.forward(1, torch.ones(2, 3))
