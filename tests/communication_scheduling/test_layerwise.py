"""What both wrappers do at layers: parameters are read when they are the step's, and what cannot be is refused."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import dtlearn
from dtlearn.communication_scheduling.simulate import BACKWARD, FORWARD
from dtlearn.communication_scheduling.wrapper import PriorityDataParallel
from dtlearn.models import snapshot_parameters
from tests.communication_scheduling.runs import (
    OPTIMIZERS,
    POLICIES,
    TOLERANCE,
    Chain,
    distance,
    own_batches,
    train,
    trained_by_ddp,
)
from tests.data_parallel.runs import MODELS
from tests.devices import run_ranks


class Checkpointed(nn.Module):
    """The middle of a chain is computed again in backward."""

    def __init__(self, chain):
        super().__init__()
        self.first, self.rest = nn.Sequential(*list(chain)[:3]), nn.Sequential(*list(chain)[3:])

    def forward(self, x):
        return self.rest(checkpoint(self.first, x, use_reentrant=False))


def checkpoints():
    found = []
    for wrap in (Checkpointed, nn.Sequential):
        torch.manual_seed(0)
        chain = Chain().to(dtlearn.device())
        wrapped = PriorityDataParallel(wrap(chain), OPTIMIZERS["adam"], POLICIES["priority"])
        for inputs, targets in own_batches("mlp"):
            nn.functional.cross_entropy(wrapped(inputs), targets).backward()
        wrapped.synchronize()
        found.append(snapshot_parameters(chain))
    return distance(*found)


def test_a_checkpoint_computes_again_with_the_parameters_of_before(device):
    assert max(run_ranks(checkpoints, 2, device=device)) < TOLERANCE


class Sometimes(nn.Module):
    """Uses its second layer in every other call."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.calls = nn.Linear(6, 4), nn.Linear(6, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.first(x) + (self.second(x) if self.calls % 2 else 0)


def not_always_used():
    """A layer that does not run is stepped all the same, and takes part with zeros."""
    torch.manual_seed(0)
    wrapped = PriorityDataParallel(Sometimes().double(), OPTIMIZERS["sgd"], POLICIES["priority"])
    torch.manual_seed(0)
    alone = Sometimes().double()
    optimizer, (rank, size) = OPTIMIZERS["sgd"](alone.parameters()), (dist.get_rank(), dist.get_world_size())
    inputs = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for _ in range(4):
        optimizer.zero_grad()
        alone(inputs).square().mean().backward()
        optimizer.step()
        wrapped(inputs[rank::size]).square().mean().backward()
    wrapped.synchronize()
    return distance(snapshot_parameters(wrapped.module), snapshot_parameters(alone))


def test_a_layer_may_rest():
    assert max(run_ranks(not_always_used, 2, device="cpu")) < TOLERANCE


def last_step():
    wrapped = train("mlp", "sgd")
    wrapped(own_batches("mlp", 1)[0][0])
    return wrapped.last_step()


def test_a_step_is_recorded():
    for step in run_ranks(last_step, 2, device="cpu"):
        assert [(s.lane, s.layer) for s in step.computed] == [
            *((BACKWARD, n) for n in (2, 1, 0)), *((FORWARD, n) for n in (0, 1, 2))
        ]  # fmt: skip
        assert all(s.start <= s.end for s in step.spans) and step.computed[0].start == 0
        for send in step.sends:
            assert 0 <= send.ready <= send.launched <= send.start <= send.end
            assert send.end <= next(s.start for s in step.computed if s[:2] == (FORWARD, send.partition.layer))


def state_dict_waits():
    wrapped = train("mlp", "adam", steps=2)
    state = {name: value.to("cpu", copy=True) for name, value in wrapped.module.state_dict().items()}
    return distance(state, trained_by_ddp("mlp", "adam", steps=2))


def test_a_state_dict_is_that_of_the_step():
    assert max(run_ranks(state_dict_waits, 2, device="cpu")) < TOLERANCE


class Outside(nn.Module):
    """Uses a layer's weight, and not the layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6).double(), nn.Linear(6, 4).double()

    def forward(self, x):
        return nn.functional.linear(self.first(x), self.second.weight)


def used_outside(wrapped, inputs, targets):
    for _ in range(2):
        nn.functional.cross_entropy(wrapped(inputs), targets).backward()


def clips(wrapped, inputs, targets):
    nn.functional.cross_entropy(wrapped(inputs), targets).backward()
    nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)


def retained(wrapped, inputs, targets):
    loss = nn.functional.cross_entropy(wrapped(inputs), targets)
    loss.backward(retain_graph=True)
    loss.backward()


def goes_on_after_an_error(wrapped, inputs, targets):
    def fails(_):
        raise KeyError("of the user's")

    wrapped.module.layers[2].weight.register_hook(fails)
    with pytest.raises(KeyError):
        nn.functional.cross_entropy(wrapped(inputs), targets).backward()
    wrapped(inputs)


def early(wrapped, inputs, targets):
    wrapped.last_step()


def refusals(cases):
    said = []
    for make, act in cases:
        wrapped = PriorityDataParallel(make().to(dtlearn.device()), OPTIMIZERS["sgd"])
        try:
            act(wrapped, *own_batches("mlp", 1)[0])
            said.append("")
        except RuntimeError as error:
            said.append(str(error))
    return said


def test_what_does_not_go_together_is_refused_with_a_reason():
    cases = {
        (Outside, used_outside): "the parameters of second were used, but its forward() was not called",
        (MODELS["mlp"], clips): "clipping by the global norm",
        (MODELS["mlp"], retained): "one backward pass is one step",
        (MODELS["mlp"], goes_on_after_an_error): "the last backward pass ended with an error",
        (MODELS["mlp"], early): "call the model once more",
    }
    said = run_ranks(refusals, 1, list(cases), device="cpu")[0]
    for words, expected in zip(said, cases.values(), strict=True):
        assert expected in words
