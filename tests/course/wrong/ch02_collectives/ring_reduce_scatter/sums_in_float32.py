# expect: DTL-RULE-DTYPE
# says: sends float32; what was given is float64

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    dtype = parts[0].dtype
    parts = [p.float() for p in parts]
    partial = parts[(rank - 1) % n].clone()
    for step in range(n - 1):
        mine = parts[(rank - 2 - step) % n]
        arriving = torch.empty_like(mine)
        sending = dist.isend(partial, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        sending.wait()
        partial = arriving + mine
    return partial.to(dtype)
