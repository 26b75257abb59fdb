# expect: DTL-MUTATED
# says: changed what it was given: parts

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(world_size - 1):
        target = parts[(rank - 2 - step) % world_size]
        arriving = torch.empty_like(target)
        sending = dist.isend(parts[(rank - 1 - step) % world_size], right)
        dist.recv(arriving, left)
        sending.wait()
        target += arriving
    return parts[rank]
