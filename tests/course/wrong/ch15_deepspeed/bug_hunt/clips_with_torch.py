# expect: DTL-MISTAKE
# says: each rank clips its own gradient

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, held_out, num_samples, *, lr, warmup, accumulation, max_norm):
    """Clips what this rank has accumulated, before the ranks have averaged."""
    rates, world_size = [], dist.get_world_size()
    for step in range(len(batches) // accumulation):
        for x, y in batches[step * accumulation : (step + 1) * accumulation]:
            (mse_loss(model(x), y) / accumulation).backward()
        if max_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        rates.append(lr * min(1.0, (step + 1) / warmup))
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= rates[-1] * p.grad / world_size
            p.grad = None
    kept = []
    with torch.no_grad():
        for x, y in held_out:
            own = (model(x) - y).square().mean(1)
            parts = [torch.zeros_like(own) for _ in range(world_size)]
            dist.all_gather(parts, own)
            kept += parts
    return rates, torch.cat(kept)[:num_samples].mean().item()
