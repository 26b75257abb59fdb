# expect: DTL-P2P-SIZE
# says: rank 0 sends 4 bytes to rank 1, which has room for 12

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    partial = parts[(rank - 1) % world_size].clone()
    for step in range(world_size - 1):
        mine = parts[(rank - 2 - step) % world_size]
        arriving = torch.empty_like(parts[0])
        sending = dist.isend(partial, right)
        dist.recv(arriving, left)
        sending.wait()
        partial = arriving + mine
    return partial
