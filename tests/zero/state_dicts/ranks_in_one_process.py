"""Ranks of a sharded model in one process: gradients are a formula of the weights, so nobody need send any."""

import torch
from torch import nn

from dtlearn.zero.partition.flat import plan_flat
from dtlearn.zero.partition.per_parameter import plan_per_parameter
from dtlearn.zero.partition.whole_tensors import plan_whole_tensors
from dtlearn.zero.state_dicts.sharded import ShardedParameters

SHAPES = {"first.weight": (5, 4), "first.bias": (5,), "norm.scale": (1,), "last.weight": (3, 5), "idle.weight": (7,)}
OPTIMIZERS = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    "Adam": lambda groups: torch.optim.Adam(groups, lr=0.01),
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=0.01, amsgrad=True),
}
NUMEL = [torch.Size(shape).numel() for shape in SHAPES.values()]
LAYOUTS = {
    "flat": lambda n: plan_flat(NUMEL, n),
    "flat, buckets": lambda n: plan_flat(NUMEL, n, 10),
    "per parameter": lambda n: plan_per_parameter(list(SHAPES.values()), n),
    "whole tensors": lambda n: plan_whole_tensors(NUMEL, n),
}


class Model(nn.Module):
    """Nothing but parameters, under dotted names."""

    def __init__(self, seed=0):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        for name, shape in SHAPES.items():
            *path, last = name.split(".")
            home = self
            for part in path:
                if not hasattr(home, part):
                    home.add_module(part, nn.Module())
                home = getattr(home, part)
            home.register_parameter(last, nn.Parameter(torch.randn(shape, generator=g)))


class Rank:
    """A rank's pieces of `Model`, its optimizer of two groups, and steps with gradients from the weights."""

    def __init__(self, num_ranks, rank, optimizer="Adam", layout="flat", seed=0, stage=3, empty_have_gradients=True):
        self.partition = LAYOUTS[layout](num_ranks)
        whole = dict(Model(seed).named_parameters())
        own = {piece.parameter: piece for piece in self.partition.slices(rank)}
        self.pieces = []
        for number, parameter in enumerate(whole.values()):
            piece = own.get(number)
            values = parameter.detach().flatten()[piece.start : piece.stop] if piece else torch.empty(0)
            if layout == "whole tensors" and piece:
                values = values.view(parameter.shape)
            self.pieces.append(nn.Parameter(values.clone()))
        self.sharded = ShardedParameters(
            list(whole), [p.shape for p in whole.values()], self.pieces, self.partition, rank, stage
        )
        by_name = dict(zip(whole, self.pieces, strict=True))
        groups = [
            {"params": [by_name["last.weight"], by_name["first.weight"]]},
            {"params": [by_name["norm.scale"], by_name["first.bias"], by_name["idle.weight"]], "lr": 0.03},
        ]
        self.optimizer = OPTIMIZERS[optimizer](groups)
        self.empty_have_gradients = empty_have_gradients

    def step(self, times=1):
        for _ in range(times):
            for name, piece in zip(SHAPES, self.pieces, strict=True):
                if name != "idle.weight" and (piece.numel() or self.empty_have_gradients):
                    piece.grad = piece.detach().sin() + 0.1
            self.optimizer.step()
        return self


def ranks(num_ranks, optimizer="Adam", **options):
    return [Rank(num_ranks, rank, optimizer, **options) for rank in range(num_ranks)]


def trained(num_ranks, optimizer="Adam", steps=3, **options):
    return [rank.step(steps) for rank in ranks(num_ranks, optimizer, **options)]


def plain(optimizer, steps):
    """The same in one process, on a model that is not sharded."""
    model = Model()
    by_name = dict(model.named_parameters())
    groups = [
        {"params": [by_name["last.weight"], by_name["first.weight"]]},
        {"params": [by_name["norm.scale"], by_name["first.bias"], by_name["idle.weight"]], "lr": 0.03},
    ]
    optim = OPTIMIZERS[optimizer](groups)
    plain_steps(model, optim, steps)
    return model, optim


def plain_steps(model, optim, steps):
    for _ in range(steps):
        for name, parameter in model.named_parameters():
            if name != "idle.weight":
                parameter.grad = parameter.detach().sin() + 0.1
        optim.step()
