"""What the tests of stage 1 share: training on ranks with an optimizer in every mode, beside one process.

In float64: what differs by more than rounding is then a bug, also after Adam.
"""

import functools

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.data_parallel import DistributedDataParallel
from dtlearn.models import max_difference, snapshot_parameters, train_reference
from dtlearn.sharing.wrapping import broadcast_module
from dtlearn.zero import NaiveZeroRedundancyOptimizer, ZeroRedundancyOptimizer
from tests.data_parallel.runs import MODELS, data, loss_of, seeded_by_rank

TOLERANCE = 1e-10
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05}),  # makes its state before the first step
}


def torchs(params, optimizer_class, **options):
    """PyTorch's, in buckets: its import warns of torch.jit, so it is imported on ranks only."""
    from torch.distributed.optim import ZeroRedundancyOptimizer as Torchs

    return Torchs(params, optimizer_class, parameters_as_bucket_view=True, **options)


# Name: what makes the optimizer, its options, and whether DDP averages the gradients before.
MODES = {
    "averaged": (ZeroRedundancyOptimizer, {}, True),
    "averaged, buckets": (ZeroRedundancyOptimizer, {"cap": 100}, True),
    "averaged, whole tensors": (ZeroRedundancyOptimizer, {"layout": "whole tensors"}, True),
    "local": (ZeroRedundancyOptimizer, {"gradients": "local"}, False),
    "local, buckets": (ZeroRedundancyOptimizer, {"gradients": "local", "cap": 100}, False),
    "local, whole tensors": (ZeroRedundancyOptimizer, {"gradients": "local", "layout": "whole tensors"}, False),
    "naive": (NaiveZeroRedundancyOptimizer, {}, True),
    "torch's": (torchs, {}, True),
}


class Unwrapped(nn.Module):
    """A model that nobody averages the gradients of: ranks begin alike, and that is all."""

    def __init__(self, module, group=None):
        super().__init__()
        self.module = module
        broadcast_module(module, group=group)

    def forward(self, *inputs):
        return self.module(*inputs)


def wrapped(name, averages=True, group=None):
    """A model that every rank made with its own seed, and that is rank 0's now."""
    model = seeded_by_rank(MODELS[name], group)
    return DistributedDataParallel(model, group=group) if averages else Unwrapped(model, group)


def train(model, optimizer, batches, loss_fn, group=None):
    """Train on this rank's part of each batch; the parameters after each step."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    steps = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs[rank::size]), targets[rank::size]).backward()
        optimizer.step()
        steps.append(snapshot_parameters(model.module))
    return steps


@functools.cache
def reference(name, optimizer, steps=3):
    """The same in one process, on whole batches; made once."""
    optimizer_class, options = OPTIMIZERS[optimizer]
    batches = data(name, steps, 12, device="cpu")
    run = train_reference(MODELS[name], lambda p: optimizer_class(p, **options), batches, loss_of(name))
    return [step.parameters for step in run.steps]


def sharded(name, optimizer, mode, steps=3, group=None):
    """The parameters after each step, on this rank."""
    make, own_options, averages = MODES[mode]
    optimizer_class, options = OPTIMIZERS[optimizer]
    model = wrapped(name, averages, group)
    made = make(model.module.parameters(), optimizer_class, process_group=group, **own_options, **options)
    return train(model, made, data(name, steps, 12), loss_of(name), group)


def distance(mine, theirs):
    """The largest difference of two runs, step by step."""
    assert len(mine) == len(theirs) > 0
    return max(max_difference(a, b).value for a, b in zip(mine, theirs, strict=True))
