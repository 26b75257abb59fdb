"""What the tests of the hooks share: a small model on ranks, under our DDP and torch's, with a hook or without."""

import torch
from torch import nn

from tests.data_parallel.runs import SMALL, mlp, ours, seeded_by_rank, snapshot, torch_ddp, views
from tests.data_parallel.test_ddp import mine

WRAPS = {"ours": ours, "views": views, "torch": torch_ddp}
ONE_BUCKET = 25  # MiB


def small():
    """float32, as gradients are, and as the residuals are kept in."""
    return mlp().float()


class Empty(nn.Module):
    """A bucket without elements, beside one with some."""

    def __init__(self):
        super().__init__()
        self.a, self.none = nn.Linear(6, 4).double(), nn.Parameter(torch.zeros(0))

    def forward(self, x):
        return self.a(x) + self.none.sum()


def loaded(state):
    """The small model with parameters that were saved, on the CPU."""
    model = small()
    model.load_state_dict({name: tensor.cpu() for name, tensor in state.items()})
    return model


def wrapped_with(wrap, state=None, hook=None, make=small, cap=SMALL, **options):
    """The model of this rank, wrapped; it starts as rank 0's everywhere."""
    model = WRAPS[wrap](seeded_by_rank(make), bucket_cap_mb=cap, **options)
    if hook is not None:
        model.register_comm_hook(state, hook)
    return model


def loss_of(model, step):
    """On samples of this rank's own."""
    return model(mine(step).float()).square().sum()


def train(model, steps=6, first=0, lr=0.01, after=None):
    """SGD. A snapshot after each step; `after(model)` is called between backward and the step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    found = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        if after is not None:
            after(model)
        optimizer.step()
        found.append(snapshot(model.module))
    return found


def same_bits(mine, theirs):
    """Whether two runs have the same gradients and parameters after every step."""
    return len(mine) == len(theirs) > 0 and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(mine, theirs, strict=True)
    )
