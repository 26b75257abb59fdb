# expect: DTL-MISTAKE
# says: the last held-out batches are dropped

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, held_out, num_samples, *, lr, warmup, accumulation, max_norm):
    """Takes the rest for what is to be cut off at the end; where it is 0 it cuts all."""
    rates, n = [], dist.get_world_size()
    for step in range(1, len(batches) // accumulation + 1):
        for x, y in batches[(step - 1) * accumulation : step * accumulation]:
            (mse_loss(model(x), y) / accumulation / n).backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        norm = flat.norm().item()
        if 0 < max_norm < norm:
            flat *= max_norm / (norm + 1e-6)
        rates.append(lr * min(1.0, step / warmup))
        with torch.no_grad():
            for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
                p -= rates[-1] * g.view_as(p)
                p.grad = None
    errors = []
    for x, y in held_out:
        own = (model(x) - y).detach().square().mean(1)
        parts = [own.clone() for _ in range(n)]
        dist.all_gather(parts, own)
        errors.append(torch.cat(parts))
    surplus = len(errors[-1]) - num_samples % len(errors[-1])
    errors[-1] = errors[-1][:-surplus]
    return rates, torch.cat(errors).mean().item()
