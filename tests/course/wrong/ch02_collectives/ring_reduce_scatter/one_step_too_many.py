# expect: DTL-VALUE-TWICE
# says: one step too many

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    r, n = dist.get_rank(), dist.get_world_size()
    acc = parts[(r - 1) % n].clone()
    for s in range(n):
        c = (r - s - 2) % n
        got = torch.empty_like(parts[c])
        q = dist.isend(acc, (r + 1) % n)
        dist.recv(got, (r - 1) % n)
        q.wait()
        acc = got + parts[c]
    return acc
