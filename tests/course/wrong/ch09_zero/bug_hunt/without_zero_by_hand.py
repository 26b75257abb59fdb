# expect: DTL-DIFFICULTY
# says: a rank updates the whole model itself

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, lr, max_norm):
    n = dist.get_world_size()
    ps = list(model.parameters())
    m = [torch.zeros_like(p) for p in ps]
    for x, y in batches:
        model.zero_grad()
        mse_loss(model(x), y).backward()
        for p in ps:
            dist.all_reduce(p.grad)
            p.grad /= n
        torch.nn.utils.clip_grad_norm_(ps, max_norm)
        with torch.no_grad():
            for p, v in zip(ps, m, strict=True):
                v.mul_(0.9).add_(p.grad)
                p -= lr * v
    return torch.cat([v.flatten() for v in m])
