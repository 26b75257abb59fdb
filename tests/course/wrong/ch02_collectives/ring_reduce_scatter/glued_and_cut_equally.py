# expect: DTL-VALUE-BORDERS
# says: put together and cut into 2 equal chunks

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = torch.cat([p.reshape(-1) for p in parts]).tensor_split(n)
    partial = chunks[(rank - 1) % n].clone()
    for step in range(n - 1):
        mine = chunks[(rank - 2 - step) % n]
        arriving = torch.empty_like(mine)
        sending = dist.isend(partial, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        sending.wait()
        partial = arriving + mine
    return partial
