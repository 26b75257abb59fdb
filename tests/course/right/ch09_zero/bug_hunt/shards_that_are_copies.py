import torch
import torch.distributed as dist


def bug_hunt(model, batches, lr, max_norm):
    rank, n = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    padding = -sum(sizes) % n
    flat = torch.cat([*(p.detach().reshape(-1) for p in parameters), torch.zeros(padding)])
    shard = flat.chunk(n)[rank].clone()
    optimizer = torch.optim.SGD([shard], lr=lr, momentum=0.9)
    for x, y in batches:
        model.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        grads = torch.cat([*(p.grad.reshape(-1) for p in parameters), torch.zeros(padding)])
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter(shard.grad, list(grads.chunk(n)))
        shard.grad /= n
        every = [torch.empty(()) for _ in range(n)]
        dist.all_gather(every, shard.grad.norm())
        norm = torch.stack(every).norm()
        if norm > max_norm:
            shard.grad *= max_norm / norm
        optimizer.step()
        parts = [torch.empty_like(shard) for _ in range(n)]
        dist.all_gather(parts, shard)
        with torch.no_grad():
            for p, part in zip(parameters, torch.cat(parts)[: sum(sizes)].split(sizes), strict=True):
                p.copy_(part.view_as(p))
    parts = [torch.empty_like(shard) for _ in range(n)]
    dist.all_gather(parts, optimizer.state[shard]["momentum_buffer"])
    return torch.cat(parts)[: sum(sizes)]
