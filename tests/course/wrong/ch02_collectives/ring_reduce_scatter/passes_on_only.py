# expect: DTL-VALUE-NO-SUM
# says: no rank added its own summand

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    r, n = dist.get_rank(), dist.get_world_size()
    acc = parts[(r - 1) % n].clone()
    for s in range(n - 1):
        got = torch.empty_like(parts[(r - s - 2) % n])
        q = dist.isend(acc, (r + 1) % n)
        dist.recv(got, (r - 1) % n)
        q.wait()
        acc = got
    return acc
