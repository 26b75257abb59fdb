"""What the tests of communication scheduling share: models, and training on ranks beside torch's DDP.

All run in float64 if not said otherwise: what differs by more than rounding is then a bug, also after Adam.
"""

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.communication_scheduling.policy import DDP_LIKE, SchedulingPolicy
from dtlearn.communication_scheduling.wrapper import PriorityDataParallel
from dtlearn.models import snapshot_parameters
from tests.data_parallel.runs import MODELS, SIZE, data, loss_of, seeded_by_rank, torch_ddp

TOLERANCE = 1e-10
POLICIES = {
    "priority": SchedulingPolicy("priority", 200, 400),
    "one at a time": SchedulingPolicy("priority", 200, 1),
    "no limit": SchedulingPolicy(),
    "fifo": SchedulingPolicy("fifo", 200, 400),
    "as DDP": DDP_LIKE,
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}
STEPS = 3


def own_batches(name, steps=STEPS):
    """This rank's part of each batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    return [(inputs[rank::size], targets[rank::size]) for inputs, targets in data(name, steps, SIZE)]


def train(name, optimizer, policy="priority", wrapper=PriorityDataParallel, steps=STEPS, **options):
    """A wrapped model after some steps."""
    wrapped = wrapper(seeded_by_rank(MODELS[name]), OPTIMIZERS[optimizer], POLICIES[policy], **options)
    for inputs, targets in own_batches(name, steps):
        loss_of(name)(wrapped(inputs), targets).backward()
    return wrapped


def trained_by_ddp(name, optimizer, steps=STEPS):
    """Parameters after the same steps of torch's DDP."""
    wrapped = torch_ddp(seeded_by_rank(MODELS[name]))
    stepper = OPTIMIZERS[optimizer](wrapped.parameters())
    for inputs, targets in own_batches(name, steps):
        stepper.zero_grad()
        loss_of(name)(wrapped(inputs), targets).backward()
        stepper.step()
    return snapshot_parameters(wrapped.module)


def distance(mine, theirs):
    """The largest difference of two models' parameters."""
    assert mine.keys() == theirs.keys()
    return max(float((mine[key] - theirs[key]).abs().max()) for key in mine if mine[key].numel())


class Chain(nn.Sequential):
    """Three linear layers, with a bias each: 6 -> 16 -> 16 -> 4."""

    def __init__(self):
        super().__init__(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
        self.double()
