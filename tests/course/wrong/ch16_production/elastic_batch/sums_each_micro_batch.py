# expect: DTL-COLL-SKIP
# says: a row more

import torch
import torch.distributed as dist


def elastic_batch(parameters, loss_of, saved, max_accumulate, rule):
    """As DDP without no_sync: the ranks exchange after every micro-batch, of which some have one more."""
    if rule not in ("linear", "sqrt"):
        raise ValueError(rule)
    n, rank, micro = dist.get_world_size(), dist.get_rank(), saved["micro_batch"]
    tuned = saved["ranks"] * micro * saved["accumulate"]
    batch = min(tuned, n * micro * max_accumulate)
    lr = saved["lr"] * (batch / tuned) ** {"linear": 1, "sqrt": 0.5}[rule]
    rows = torch.arange(batch).tensor_split(n)[rank]
    total = [torch.zeros_like(p) for p in parameters]
    for part in rows.split(micro) if len(rows) else []:
        gradients = torch.autograd.grad(loss_of(part.tolist()) * len(part) / batch, parameters)
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        for t, g in zip(total, flat.split([p.numel() for p in parameters]), strict=True):
            t += g.view_as(t)
    with torch.no_grad():
        for p, t in zip(parameters, total, strict=True):
            p -= lr * t
    return lr
