# expect: DTL-VALUE-NO-SUM
# says: no rank added its own summand to what came by

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    partial = parts[(rank - 1) % n].clone()
    for step in range(n - 1):
        arriving = torch.empty_like(parts[(rank - 2 - step) % n])
        s = dist.isend(partial, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        s.wait()
        partial = arriving
    return partial
