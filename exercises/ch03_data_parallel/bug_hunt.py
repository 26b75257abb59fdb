# ch03.bug_hunt: edit this file, then run `dtlearn grade ch03.bug_hunt`.
"""Find three bugs in a training loop.

`as_found` below trains a model on all ranks. On one rank it seems to work. On several it trains,
somewhat worse than it should, and one day it hangs. Bugs of the same three kinds were found and
fixed in public projects (hint 2 links the fixes, and so gives the bugs away). Nothing else is
wrong: whatever else looks odd is harmless. Run it in a `%%ranks` cell, find the bugs, and write the
version without them.

**Given** `model`; `dataset`, which every rank can read as a whole (its size is a multiple of
`batch_size` times the number of ranks); `validation`, this rank's part of the validation data, a
pair `(x, y)` of the same size on all ranks; and numbers.

**Return**, on every rank, the list of validation losses, one float per epoch. The model is trained
in place. On any number of ranks it should do what one process would do:

- It starts from rank 0's parameters.
- In epoch e (0, 1, ...) the ranks share the samples in the order of torch's `DistributedSampler`
  with seed 0 for epoch e: each sample once, and another order in each epoch.
- A step uses the mean gradient over all ranks' batches, scaled down to norm `max_norm` if it is
  longer.
- The validation loss is the mean over all ranks' validation data. Training ends after the first
  epoch in which it is below `target`, and after `epochs` epochs at the latest.

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
    """The program with its three bugs."""
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
