import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, lr, max_norm):
    """Each rank has the elements whose number it divides; no torch optimizer."""
    rank, n = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    pad = -sum(sizes) % n
    m = torch.zeros((sum(sizes) + pad) // n)

    def flat(tensors):
        return torch.cat([*(t.detach().flatten() for t in tensors), torch.zeros(pad)]).view(-1, n)

    def whole(own):
        parts = [torch.empty_like(own) for _ in range(n)]
        dist.all_gather(parts, own.contiguous())
        return torch.stack(parts, 1).flatten()[: sum(sizes)]

    for x, y in batches:
        grads = torch.autograd.grad(mse_loss(model(x), y), parameters)
        g = flat(grads)
        dist.all_reduce(g)
        g /= n
        g *= min(1.0, max_norm / (float(g.norm()) + 1e-6))
        m = 0.9 * m + g[:, rank]
        new = whole(flat(parameters)[:, rank] - lr * m)
        with torch.no_grad():
            for p, v in zip(parameters, new.split(sizes), strict=True):
                p.copy_(v.view_as(p))
    return whole(m)
