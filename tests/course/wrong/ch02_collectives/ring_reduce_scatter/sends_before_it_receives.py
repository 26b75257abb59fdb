# expect: DTL-P2P-CYCLE
# says: send to each other and nobody receives

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    partial = parts[(rank - 1) % world_size].clone()
    for step in range(world_size - 1):
        mine = parts[(rank - 2 - step) % world_size]
        arriving = torch.empty_like(mine)
        dist.send(partial, right)
        dist.recv(arriving, left)
        partial = arriving + mine
    return partial
