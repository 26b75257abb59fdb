"""What the tests of data parallelism share: models with their peculiarities, and training on ranks beside a reference.

All run in float64 if not said otherwise: what differs by more than rounding is then a bug, also after Adam.
"""

import functools
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import dtlearn
from dtlearn.data_parallel.bucketed import BucketedDataParallel
from dtlearn.data_parallel.ddp import DistributedDataParallel
from dtlearn.data_parallel.naive import NaiveDataParallel
from dtlearn.models import (
    GPT,
    MLP,
    GPTConfig,
    max_difference,
    next_token_loss,
    snapshot_gradients,
    snapshot_parameters,
    train_reference,
)
from tests import devices

TOLERANCE = 1e-10  # measured: below 2e-13
SMALL = 600 / (1 << 20)  # MiB: small enough for several buckets


def mlp():
    return MLP((6, 16, 16, 4)).double()


def frozen_mlp():
    model = mlp()
    model.layers[2].requires_grad_(False)
    return model


def gpt(tied=False):
    return GPT(GPTConfig(16, 8, 1, 2, 8, tie_embeddings=tied)).double()


def tied_gpt():
    return gpt(tied=True)


class Twice(nn.Module):
    """One layer used twice, and one parameter without a dimension, one without elements."""

    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)
        self.scale, self.empty = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.zeros(0))

    def forward(self, x):
        x = self.shared(self.shared(self.first(x)).tanh())
        return self.last(x) * self.scale + self.empty.sum()


class MixedTypes(nn.Module):
    """float32 in the middle of float64."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8).double(), nn.Linear(8, 8), nn.Linear(8, 4).double()

    def forward(self, x):
        return self.c(self.b(self.a(x).float()).double())


class Normed(nn.Module):
    """Batch norm: running statistics in float64, a count in int64."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.b(self.norm(self.a(x)))


class Paths(nn.Module):
    """Layers of which each call uses some, given by their names: "ab"."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(6, 4) for _ in range(4))

    def forward(self, x, use):
        return sum(getattr(self, name)(x) for name in use)


MODELS = {
    "mlp": mlp,
    "frozen": frozen_mlp,
    "gpt": gpt,
    "tied": tied_gpt,
    "twice": lambda: Twice().double(),
    "types": MixedTypes,
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def torch_ddp(module, group=None, bucket_cap_mb=SMALL, **options):
    return devices.torch_ddp(module, process_group=group, bucket_cap_mb=bucket_cap_mb, **options)


def ours(module, group=None, bucket_cap_mb=SMALL, **options):
    return DistributedDataParallel(module, group=group, bucket_cap_mb=bucket_cap_mb, **options)


def views(module, **options):
    return ours(module, gradient_as_bucket_view=True, **options)


def bucketed(module, group=None, bucket_cap_mb=SMALL):
    return BucketedDataParallel(module, group=group, bucket_cap_mb=bucket_cap_mb)


def naive(module, group=None):
    return NaiveDataParallel(module, group=group)


def data(name, steps, size, seed=7, device=None):
    """Global batches for a model of MODELS, on this rank's device."""
    device = device or dtlearn.device()
    g = torch.Generator().manual_seed(seed)
    if name in ("gpt", "tied"):
        tokens = torch.randint(16, (steps, size, 9), generator=g).to(device)
        return [(t[:, :-1], t[:, 1:]) for t in tokens]
    inputs = torch.randn(steps, size, 6, generator=g, dtype=torch.float64).to(device)
    return list(zip(inputs, torch.randint(4, (steps, size), generator=g).to(device), strict=True))


def loss_of(name):
    return next_token_loss if name in ("gpt", "tied") else F.cross_entropy


def seeded_by_rank(make, group=None):
    """A model, on this rank's device, that only the group's first rank has as `seed=0` makes it."""
    torch.manual_seed(dist.get_rank(group))
    return make().to(dtlearn.device())


def snapshot(model):
    """Gradients, parameters and buffers of a model, on the CPU, under names that say which."""
    gradients = {f"{name}.grad": value for name, value in snapshot_gradients(model).items()}
    buffers = {name: buffer.to("cpu", copy=True) for name, buffer in model.named_buffers()}
    return {**gradients, **snapshot_parameters(model), **buffers}


def train(wrapped, optimizer, batches, loss_fn, group=None, set_to_none=True):
    """Train on this rank's part of each batch. Returns a snapshot after each step, before the gradients are gone."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    steps = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_fn(wrapped(inputs[rank::size]), targets[rank::size]).backward()
        optimizer.step()
        steps.append(snapshot(wrapped.module))
    return steps


SIZE = 12  # of a batch: 1, 2, 3 and 4 ranks share it evenly


@functools.cache
def reference(name, optimizer, steps):
    """Snapshots of the single-process run, on the CPU; each process makes it once, for all wrappers."""
    run = train_reference(MODELS[name], OPTIMIZERS[optimizer], data(name, steps, SIZE, device="cpu"), loss_of(name))
    return [
        {**{f"{name}.grad": value for name, value in step.gradients.items()}, **step.parameters} for step in run.steps
    ]


def distance_to_reference(name, wrap, optimizer, steps=3, group=None, set_to_none=True):
    """How far a wrapped model's gradients and parameters are from the single-process run, at most."""
    theirs = reference(name, optimizer, steps)
    wrapped = wrap(seeded_by_rank(MODELS[name], group))
    make = OPTIMIZERS[optimizer]
    mine = train(wrapped, make(wrapped.parameters()), data(name, steps, SIZE), loss_of(name), group, set_to_none)
    return distance(mine, theirs)


def distance(mine, theirs):
    """The largest difference of two runs, step by step; infinite if a gradient is missing on one side."""
    assert len(mine) == len(theirs) > 0
    if any(a.keys() != b.keys() for a, b in zip(mine, theirs, strict=True)):
        return torch.inf
    return max(max_difference(a, b).value for a, b in zip(mine, theirs, strict=True))


def message_of(action):
    """What an action raises, in words; "" if nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def settled(ledger, nbytes):
    """Bytes in use. gloo's thread lets go of a tensor a little later than we do: wait for no more than `nbytes`."""
    deadline = time.monotonic() + 5
    while ledger.now > nbytes and time.monotonic() < deadline:
        time.sleep(0.01)
    return ledger.now
