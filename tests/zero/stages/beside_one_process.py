"""A small model, sharded and plain, that is trained in some way on the ranks: how far apart the two are afterwards."""

import copy

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.zero.stages.zero3 import FullyShardedDataParallel


class Net(nn.Module):
    """Blocks, which are units, between two layers of the root."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def net():
    torch.manual_seed(0)
    return Net().double()


def sharded(**options):
    return FullyShardedDataParallel(net(), units=(nn.Sequential,), **options)


def batch(number=0, rows=4):
    g = torch.Generator().manual_seed(10 * number + dist.get_rank())
    return torch.randn(rows, 6, generator=g, dtype=torch.float64)


def inner(model):
    return model.module if isinstance(model, FullyShardedDataParallel) else model


def average(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def largest_difference(whole, others):
    assert whole.keys() == others.keys()
    return max(float((whole[name] - others[name]).abs().max()) for name in whole)


def apart(way, **options):
    """The largest difference after two steps of Adam in which `way(model)` makes the gradients."""
    model, plain = sharded(**options), net()
    for each in (model, plain):
        adam = torch.optim.Adam(each.parameters(), lr=0.01)
        for _ in range(2):
            adam.zero_grad()
            way(each)
            if each is plain:
                average(plain)
            adam.step()
    return largest_difference(model.full_params(), {n: p.detach() for n, p in plain.named_parameters()})


def copied_and_trained(model, optimizer, make_copy=copy.deepcopy):
    """One more step of the original after a copy was made; returns the copy and what it began with."""
    twin = make_copy(model)
    began = twin.full_params()
    step(model, optimizer)
    return twin, began


def step(model, optimizer, number=0):
    optimizer.zero_grad()
    model(batch(number)).square().mean().backward()
    optimizer.step()
