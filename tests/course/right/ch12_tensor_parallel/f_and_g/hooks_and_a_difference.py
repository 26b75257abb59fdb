import torch
import torch.distributed as dist


def f_and_g(group):
    def total(x):
        parts = [torch.empty(x.shape, dtype=x.dtype) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.detach().contiguous(), group=group)
        return torch.stack(parts).sum(0)

    def f(x):
        y = x * 1
        if y.requires_grad:
            y.register_hook(total)
        return y

    def g(x):
        return x + (total(x) - x).detach()

    return f, g
