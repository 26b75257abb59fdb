import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, dataset, validation, epochs, batch_size, lr, max_norm, target):
    size, rank = dist.get_world_size(), dist.get_rank()
    xs, ys = (torch.stack(column) for column in zip(*[dataset[i] for i in range(len(dataset))], strict=False))
    params = list(model.parameters())
    with torch.no_grad():
        for p in params:
            dist.broadcast(p, 0)
    losses = []
    for epoch in range(epochs):
        order = torch.randperm(len(xs), generator=torch.Generator().manual_seed(epoch))[rank::size]
        for rows in order.split(batch_size):
            grads = torch.autograd.grad(mse_loss(model(xs[rows]), ys[rows]), params)
            flat = torch.cat([g.flatten() for g in grads])
            dist.all_reduce(flat)
            flat /= size
            flat *= (max_norm / (flat.norm() + 1e-6)).clamp(max=1)
            with torch.no_grad():
                for p, g in zip(params, flat.split([p.numel() for p in params]), strict=False):
                    p -= lr * g.view_as(p)
        with torch.no_grad():
            loss = mse_loss(model(validation[0]), validation[1])
        every = [torch.empty_like(loss) for _ in range(size)]
        dist.all_gather(every, loss)
        losses.append(torch.stack(every).mean().item())
        if losses[-1] < target:
            return losses
    return losses
