# expect: DTL-DIFFICULTY
# says: in the order of torch's DistributedSampler with seed 0 for that epoch

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
    DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
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
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
    losses: list[float] = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
        with torch.no_grad():
            loss = mse_loss(model(validation[0]), validation[1])
        dist.all_reduce(loss)
        losses.append(loss.item() / dist.get_world_size())
        if losses[-1] < target:
            break
    return losses
