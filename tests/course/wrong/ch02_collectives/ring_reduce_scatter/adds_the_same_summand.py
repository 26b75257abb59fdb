# expect: DTL-VALUE-WRONG-PART
# says: the part that it had just sent on

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    partial = parts[(rank - 1) % n].clone()
    for step in range(n - 1):
        mine = parts[(rank - 1 - step) % n]
        arriving = torch.empty_like(parts[(rank - 2 - step) % n])
        sending = dist.isend(partial, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        sending.wait()
        partial = arriving + mine
    return partial
