# expect: DTL-VALUE-PERMUTED
# says: rank 0 has the sum of part 1, which belongs on rank 1
# says: rank 0 has to send part 1 first; here it began with part 0

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    partial = parts[rank].clone()
    for step in range(world_size - 1):
        mine = parts[(rank - 1 - step) % world_size]
        arriving = torch.empty_like(mine)
        sending = dist.isend(partial, right)
        dist.recv(arriving, left)
        sending.wait()
        partial = arriving + mine
    return partial
