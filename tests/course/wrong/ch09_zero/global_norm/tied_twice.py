# expect: DTL-DIFFICULTY
# says: what stands twice in a list is counted, or scaled, twice

import math

import torch
import torch.distributed as dist


def global_norm(shards, used, replicated, max_norm, group=None):
    parts, seen = [], set()
    for shard, n in zip(shards, used, strict=True):
        if shard.grad is not None and id(shard) not in seen:
            parts.append(shard.grad[:n])
    whole = []
    for p in replicated:
        if p.grad is not None:
            seen.add(id(p))
            whole.append(p.grad)
    counted = parts + whole if dist.get_rank(group) == 0 else parts
    total = torch.tensor([sum(float(g.double().pow(2).sum()) for g in counted)], dtype=torch.float32)
    dist.all_reduce(total, group=group)
    norm = math.sqrt(float(total))
    factor = max_norm / (norm + 1e-6)
    if factor < 1:
        for g in parts + whole:
            g.mul_(factor)
    return norm
