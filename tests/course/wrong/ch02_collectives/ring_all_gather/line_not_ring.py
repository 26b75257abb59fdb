# expect: DTL-MISTAKE
# says: the messages go along a line and not around a ring

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = [torch.empty_like(x) for _ in range(n)]
    out[rank].copy_(x)
    for k in range(n - 1):
        req = None
        if rank < n - 1:
            req = dist.isend(out[(rank - k) % n], rank + 1)
        if rank > 0:
            dist.recv(out[(rank - k - 1) % n], rank - 1)
        if req is not None:
            req.wait()
    return out
