# expect: DTL-VALUE-TWICE
# says: one step too many: each rank's own x came round

import torch
import torch.distributed as dist


def repair_the_ring(x):
    r, n = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(n):
        got = torch.empty_like(x)
        q = dist.isend(token, (r + 1) % n)
        dist.recv(got, (r - 1) % n)
        q.wait()
        total += got
        token = got
    return total
