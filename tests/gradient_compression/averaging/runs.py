"""What the tests of rare averaging share: a small model in float64, batches by rank, and all ranks in one process."""

import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.models import MLP
from dtlearn.runtime.device import device

SIZES, TOLERANCE = (6, 5, 3), 1e-12  # measured: below 1e-15
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def make_model(seed=0):
    torch.manual_seed(seed)
    return MLP(SIZES).double()


def with_batch_norm(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()


def batch(rank, step, samples=4):
    """A batch that differs for each rank and step; its classes are those of a fixed linear map."""
    draw = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(samples, 6, generator=draw, dtype=torch.float64)
    return x, (x @ torch.linspace(-1, 1, 18, dtype=torch.float64).view(6, 3).cos()).argmax(1)


def gradients(model, batches):
    """Run forward and backward of some batches as one; returns the loss."""
    x, y = (torch.cat(parts).to(next(model.parameters()).device) for parts in zip(*batches, strict=True))
    model.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss.item()


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def train(training, model, steps, rank=None, start=0, trace=None):
    """Train on a rank with any of the methods; returns the parameters after each step."""
    rank = dist.get_rank() if rank is None else rank
    trace = [] if trace is None else trace
    for step in range(start, start + steps):
        gradients(model, [batch(rank, step)])
        training.step()
        trace.append(flat(model))
    return trace


def on_rank(make, steps, optimizer="adamw", model_of=make_model):
    """Train on a rank with `make(model, optimizer)`. Only the broadcast makes the ranks' models begin equal."""
    model = model_of(dist.get_rank()).to(device())
    return train(make(model, OPTIMIZERS[optimizer](model.parameters())), model, steps)


def simulated(num_workers, steps, period, meeting, optimizer="adamw", ranks_of=lambda worker: [worker]):
    """All workers in one process; `meeting(flats)` of the workers' parameters gives those they go on with.

    Returns:
        By step: the parameters of all workers, (workers, n).
    """
    models = [make_model() for _ in range(num_workers)]
    optimizers = [OPTIMIZERS[optimizer](m.parameters()) for m in models]
    trace = []
    for step in range(1, steps + 1):
        for worker, (model, own) in enumerate(zip(models, optimizers, strict=True)):
            gradients(model, [batch(rank, step - 1) for rank in ranks_of(worker)])
            own.step()
        if step % period == 0:
            for model, values in zip(models, meeting(torch.stack([flat(m) for m in models])), strict=True):
                nn.utils.vector_to_parameters(values.clone(), model.parameters())
        trace.append(torch.stack([flat(m) for m in models]))
    return trace


def to_mean(flats):
    return flats.mean(0).expand_as(flats)


def difference(run, expected, worker_of=lambda rank: rank):
    """The largest difference of any parameter, step and rank."""
    return max(
        float((mine - all_of_them[worker_of(rank)]).abs().max())
        for rank, trace in enumerate(run)
        for mine, all_of_them in zip(trace, expected, strict=True)
    )


def copied(state):
    """A copy of a state dict, as if it were written to a file and read again."""
    return copy.deepcopy(state)
