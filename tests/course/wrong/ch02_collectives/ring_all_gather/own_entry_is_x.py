# expect: DTL-VALUE-NOT-NEW
# says: the rank's own entry in the list is the x that was given

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = [torch.empty_like(x) for _ in range(n)]
    out[rank] = x
    for k in range(n - 1):
        req = dist.isend(out[(rank - k) % n], (rank + 1) % n)
        dist.recv(out[(rank - k - 1) % n], (rank - 1) % n)
        req.wait()
    return out
