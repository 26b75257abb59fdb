# expect: DTL-DIFFICULTY
# says: bytes a step, in samples
# says: In NumPy, too, a row is a view

from typing import Any

import torch
import torch.distributed as dist

Batch = tuple[torch.Tensor, torch.Tensor]


def squared_error(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error, ()."""
    return (out - y).square().mean()


def find_the_leak(model: torch.nn.Module, batches: list[Batch], validation: Batch, lr: float) -> dict[str, Any]:
    """Train the model in place. Returns losses, smoothed validation losses and samples."""
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    losses, smoothed, samples = [], [], []
    average = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        out = model(x)
        loss = squared_error(out, y)
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in parameters]) / dist.get_world_size()
        work = dist.all_reduce(flat, async_op=True)
        losses.append(loss.item())
        samples.append(out.detach().numpy().copy()[0])
        work.wait()
        for p, part in zip(parameters, flat.split(sizes), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
        with torch.no_grad():
            average = 0.9 * average + 0.1 * squared_error(model(validation[0]), validation[1]).item()
        smoothed.append(average)
    return {"losses": losses, "smoothed": smoothed, "samples": torch.stack([torch.from_numpy(row) for row in samples])}
