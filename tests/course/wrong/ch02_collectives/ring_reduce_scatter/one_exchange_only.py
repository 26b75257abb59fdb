# expect: DTL-WS
# says: right with 1 and 2 ranks, wrong with 3 and 4

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1:
        return parts[0].clone()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    theirs = torch.empty_like(parts[rank])
    sending = dist.isend(parts[right], right)
    dist.recv(theirs, left)
    sending.wait()
    return parts[rank] + theirs
