"""What the tests of sharded training share: runs on the ranks beside the single-process run and PyTorch's.

Everything is in float64: what differs by more than rounding is a bug, also after Adam.
"""

import functools

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only

import dtlearn
from dtlearn.models import snapshot_parameters, train_reference
from dtlearn.models.gpt import Block
from tests.data_parallel.runs import MODELS, data, loss_of

TOLERANCE = 1e-10  # measured: below 3e-14
UNITS = {"mlp": (nn.Linear,), "frozen": (nn.Linear,), "gpt": (Block,), "tied": (Block,), "twice": (nn.Linear,)}
UNITS |= {"types": (nn.Linear,)}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    # `fully_shard` looks once for how to divide its update, and not for each operation of it.
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
}


def batches_of(name, steps=3, size=12, device=None):
    """Global batches, on this rank's device; 1, 2, 3 and 4 ranks share each of them evenly."""
    return data(name, steps, size, device=device)


def seeded_by_rank(name, group=None):
    """A model, on this rank's device, that only the group's first rank has as `train_reference` makes it."""
    torch.manual_seed(dist.get_rank(group))
    return MODELS[name]().to(dtlearn.device())


def from_all_ranks(value, group=None):
    """What each rank has, on all: an `all_gather_object` of arrays, which are pickled ten times as fast as tensors."""
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(
        everyone, tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu().numpy(), value), group
    )
    return tree_map_only(np.ndarray, torch.from_numpy, everyone)


def full_gradients(names, shapes, pieces, group=None):
    """The mean gradients by name, put together from the shards, where any rank has one."""
    everyone, found = from_all_ranks([piece.grad for piece in pieces], group), {}
    for name, shape, *parts in zip(names, shapes, *everyone, strict=True):
        there = [part for part in parts if part is not None]
        if there or not shape.numel():
            found[f"{name}.grad"] = torch.cat([torch.empty(0, dtype=torch.float64), *there]).view(shape)
    return found


def train(wrapped, optimizer, name, group=None, rank=None, size=None, gradients=True):
    """Train on this rank's part of each batch: gradients and parameters after each step, whole, by name."""
    rank, size = rank if size else dist.get_rank(group), size or dist.get_world_size(group)
    loss_fn, steps = loss_of(name), []
    for inputs, targets in batches_of(name):
        optimizer.zero_grad()
        loss_fn(wrapped(inputs[rank::size]), targets[rank::size]).backward()
        found = full_gradients(wrapped.names, wrapped.shapes, wrapped.sharded_params, group) if gradients else {}
        optimizer.step()
        with wrapped.unsharded():
            steps.append({**found, **snapshot_parameters(wrapped.module)})
    return steps


@functools.cache
def reference(name, optimizer, gradients=True):
    """The single-process run, as `train` gives it; each process makes it once."""
    run = train_reference(MODELS[name], OPTIMIZERS[optimizer], batches_of(name, device="cpu"), loss_of(name))
    return [
        {**({f"{name}.grad": g for name, g in step.gradients.items()} if gradients else {}), **step.parameters}
        for step in run.steps
    ]


def torchs(name, optimizer, mesh=None):
    """Parameters after each step with `fully_shard`, on this rank's part of each batch."""
    from torch.distributed.fsdp import fully_shard  # takes as long as a run: only ranks that need it import it

    torch.manual_seed(0)
    model = MODELS[name]()
    for module in model.modules():
        if isinstance(module, UNITS[name]) and module is not model:
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    made = OPTIMIZERS["fused adamw" if optimizer == "adamw" else optimizer](model.parameters())
    rank, size, steps = dist.get_rank(), dist.get_world_size(), []
    for inputs, targets in batches_of(name):
        made.zero_grad()
        loss_of(name)(model(inputs[rank::size]), targets[rank::size]).backward()
        made.step()
        steps.append({name: p.detach().full_tensor().clone() for name, p in model.named_parameters()})
    return steps


def split_at_barriers(events):
    """The events of one rank before each barrier, as lists."""
    parts = [[]]
    for event in events:
        if event.op == "barrier":
            parts.append([])
        else:
            parts[-1].append(event)
    return parts[:-1]
