# expect: DTL-VALUE-NOT-NEW
# says: what is returned is the x that was given, not a new tensor

import torch
import torch.distributed as dist


def repair_the_ring(x):
    r, n = dist.get_rank(), dist.get_world_size()
    total, token = x, x
    for _ in range(n - 1):
        got = torch.empty_like(x)
        q = dist.isend(token, (r + 1) % n)
        dist.recv(got, (r - 1) % n)
        q.wait()
        total = total + got
        token = got
    return total
