# ch03.bug_hunt: edit this file, then run `dtlearn grade ch03.bug_hunt`.
"""Find three bugs in a training loop.

`as_found` below trains a model on all ranks. With one rank it seems to work; with more it trains,
somewhat worse than it should, and one day it hangs. Each of its three bugs stood in the code of a
large project, was reported there, and was repaired. Nothing else is wrong: what looks odd besides
is harmless. Run it in a `%%ranks` cell, find the bugs, and write the version without them.

Comes in: `model`; `dataset`, which all ranks can read whole, with as many samples as they can share
evenly in whole batches; `validation`, a pair (x, y), each rank's own part of the validation data, of
the same size on all ranks; and numbers.

Goes out, on every rank: the validation loss after each epoch, a list of floats. The model is
trained in place. What it should do, on any number of ranks, is what one process would do:

- It begins with rank 0's parameters.
- In epoch e (0, 1, ...) the ranks share the samples in the order that torch's DistributedSampler
  with seed 0 has for that epoch: each sample once, and each epoch in another order.
- A step goes along the mean gradient of all ranks' batches. If that is longer than `max_norm`, it
  is shortened to `max_norm`.
- The validation loss is the mean over the validation data of all ranks. Training ends after the
  first epoch in which it is below `target`, and after `epochs` epochs at the latest.

Each bug is judged in a case of its own, and all of them together.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def as_found(
    model: torch.nn.Module,
    dataset: Dataset,
    validation: tuple[torch.Tensor, torch.Tensor],
    epochs: int,
    batch_size: int,
    lr: float,
    max_norm: float,
    target: float,
) -> list[float]:
    """The program as it was found."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    losses: list[float] = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            clip_grad_norm_(model.parameters(), max_norm)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            optimizer.step()
        with torch.no_grad():
            loss = mse_loss(model(validation[0]), validation[1])
        losses.append(loss.item())
        if losses[-1] < target:
            break
    return losses


def bug_hunt(
    model: torch.nn.Module,
    dataset: Dataset,
    validation: tuple[torch.Tensor, torch.Tensor],
    epochs: int,
    batch_size: int,
    lr: float,
    max_norm: float,
    target: float,
) -> list[float]:
    """Train the model in place. Returns the validation loss after each epoch."""
    raise NotImplementedError("ch03.bug_hunt: the same program without its three bugs")
