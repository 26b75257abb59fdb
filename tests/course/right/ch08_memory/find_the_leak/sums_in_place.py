"""A function for each part, gradients averaged one by one and at once, and results in tensors made before."""

import torch
import torch.distributed as dist


def squared_error(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error, ()."""
    return (out - y).square().mean()


def train(model, optimizer, x, y):
    out = model(x)
    loss = squared_error(out, y)
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), out[0].tolist()


def find_the_leak(model, batches, validation, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses, averages, rows = [], [0.0], []
    for x, y in batches:
        loss, row = train(model, optimizer, x, y)
        losses.append(loss)
        rows.append(row)
        after = squared_error(model(validation[0]), validation[1])
        averages.append(0.9 * averages[-1] + 0.1 * after.detach().item())
    return {"losses": losses, "smoothed": averages[1:], "samples": torch.tensor(rows)}
