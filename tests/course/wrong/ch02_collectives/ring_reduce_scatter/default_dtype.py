# expect: DTL-P2P-SIZE
# says: float64 against float32

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    partial = parts[(rank - 1) % n].clone()
    for step in range(n - 1):
        mine = parts[(rank - 2 - step) % n]
        arriving = torch.zeros(mine.shape)
        s = dist.isend(partial, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        s.wait()
        partial = arriving + mine
    return partial
