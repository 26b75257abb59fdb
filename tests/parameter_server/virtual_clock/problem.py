"""A small problem with uneven parts, for the tests of the clock."""

import torch
import torch.nn.functional as F

from dtlearn.models import MLP, snapshot_parameters
from dtlearn.parameter_server.virtual_clock.compute import computing

SIZES = (5, 8, 3)
LOSS = F.cross_entropy


def make_model(seed=0):
    torch.manual_seed(seed)
    return MLP(SIZES)


def batches(num_workers, num_steps, even=False):
    """`[worker][number]`; worker w has w + 2 samples in each batch, or all have 4."""
    draw = torch.Generator().manual_seed(7)
    return [
        [
            (torch.randn(size, 5, generator=draw), torch.randint(3, (size,), generator=draw))
            for size in [4 if even else worker + 2] * num_steps
        ]
        for worker in range(num_workers)
    ]


def whole_batches(parts):
    """The global batches of the steps."""
    return [tuple(map(torch.cat, zip(*step, strict=True))) for step in zip(*parts, strict=True)]


def initial():
    return snapshot_parameters(make_model())


def compute_of(parts):
    return computing(make_model(), LOSS, parts)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)
