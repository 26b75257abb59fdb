# expect: DTL-VALUE-MISSING
# says: one step too few

import torch
import torch.distributed as dist


def repair_the_ring(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(world_size - 2):
        arriving = torch.empty_like(token)
        sending = dist.isend(token, (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        sending.wait()
        token = arriving
        total += token
    return total
