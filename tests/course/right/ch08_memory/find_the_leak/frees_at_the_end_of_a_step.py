"""Lists as they were found, but emptied in each step; losses stay tensors, without a graph, until the end."""

import torch
import torch.distributed as dist


def squared_error(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error, ()."""
    return (out - y).square().mean()


def find_the_leak(model, batches, validation, lr):
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    losses, smoothed, works = [], [], []
    average, samples = torch.zeros(()), torch.empty(0)
    for x, y in batches:
        optimizer.zero_grad()
        out = model(x)
        loss = squared_error(out, y)
        loss.backward()
        for p in parameters:
            works.append((dist.all_reduce(p.grad, async_op=True), p))
        while works:
            work, p = works.pop()
            work.wait()
            p.grad.div_(dist.get_world_size())
        optimizer.step()
        losses.append(loss.detach())
        samples = torch.cat([samples.view(-1, out.shape[1]), out[:1].detach()])
        average = (0.9 * average + 0.1 * squared_error(model(validation[0]), validation[1])).detach()
        smoothed.append(average)
    floats = [tensor.item() for tensor in losses], [tensor.item() for tensor in smoothed]
    return {"losses": floats[0], "smoothed": floats[1], "samples": samples}
