"""What the tests of weights share: a small regression with parameters in 16 bits, and its reference."""

import torch
from torch import nn

import dtlearn


def model(dtype=torch.bfloat16, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtlearn.device(), dtype)


def batches(steps, dtype=torch.bfloat16):
    g = torch.Generator().manual_seed(1)
    drawn = [(torch.randn(8, 6, generator=g).to(dtype), torch.randn(8, 3, generator=g)) for _ in range(steps)]
    return [(inputs.to(dtlearn.device()), targets.to(dtlearn.device())) for inputs, targets in drawn]


def loss_of(module, batch):
    inputs, targets = batch
    return (module(inputs).float() - targets).square().mean()


def train(module, optimizer, steps, skip=0):
    for batch in batches(skip + steps, next(module.parameters()).dtype)[skip:]:
        optimizer.zero_grad()
        loss_of(module, batch).backward()
        optimizer.step()
    return values(module)


def values(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def same(mine, theirs):
    return len(mine) == len(theirs) > 0 and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05}),  # makes its state before the first step
}


def weight_after(make, updates, size):
    """A bfloat16 weight that begins at 1 and should move up by `size` in each step."""
    weight = nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
    optimizer = make([weight], torch.optim.SGD, lr=1.0)
    for _ in range(updates):
        weight.grad = torch.full_like(weight, -size)
        optimizer.step()
    return weight.detach().float()
