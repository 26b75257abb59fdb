# expect: DTL-COLL-SKIP
# says: a rank without rows has no gradient: it adds zeros

import torch
import torch.distributed as dist


def elastic_batch(parameters, loss_of, saved, max_accumulate, rule):
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"{rule} is no rule")
    micro = saved["micro_batch"]
    tuned = saved["ranks"] * saved["accumulate"] * micro
    batch = min(tuned, dist.get_world_size() * max_accumulate * micro)
    ratio = batch / tuned
    lr = saved["lr"] * (ratio if rule == "linear" else ratio**0.5)
    mine = torch.arange(batch).tensor_split(dist.get_world_size())[dist.get_rank()].tolist()
    if not mine:
        return lr  # the others wait
    sums = [torch.zeros_like(p) for p in parameters]
    while mine:
        now, mine = mine[:micro], mine[micro:]
        for s, g in zip(sums, torch.autograd.grad(loss_of(now), parameters), strict=True):
            s += len(now) / batch * g
    for p, s in zip(parameters, sums, strict=True):
        dist.all_reduce(s)
        p.data.sub_(lr * s)
    return lr
