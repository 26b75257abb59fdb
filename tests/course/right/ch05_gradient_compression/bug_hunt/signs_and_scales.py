import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def meet(model, last, residuals):
    ranks = dist.get_world_size()
    for name, p in model.named_parameters():
        wanted = p.data - last[name] + residuals.get(name, 0.0)
        scale, signs = wanted.abs().mean().view(1), wanted.sign().to(torch.int8).flatten()
        scales = [torch.empty_like(scale) for _ in range(ranks)]
        all_signs = [torch.empty_like(signs) for _ in range(ranks)]
        dist.all_gather(scales, scale)
        dist.all_gather(all_signs, signs)
        residuals[name] = wanted - scale * wanted.sign()
        last[name] += torch.stack([a * b for a, b in zip(scales, all_signs, strict=True)]).mean(0).view_as(p)
        p.data[...] = last[name]
    for buffer in model.buffers():
        own = buffer.double()
        dist.all_reduce(own)
        buffer.copy_(own / ranks)


def bug_hunt(model, batches, epochs, h, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    last, residuals = {name: p.detach().clone() for name, p in model.named_parameters()}, {}
    for step in range(epochs * len(batches)):
        x, y = batches[step % len(batches)]
        loss = mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % h == h - 1:
            meet(model, last, residuals)
