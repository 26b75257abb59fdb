# expect: DTL-VALUE-PERMUTED
# says: rank 0 has the message of rank 3, rank 1 has the message of rank 0

import torch
import torch.distributed as dist


def ping_pong(message):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size % 2 and rank == world_size - 1:
        return None
    ring = world_size - world_size % 2
    theirs = torch.empty_like(message)
    sending = dist.isend(message, (rank + 1) % ring)
    dist.recv(theirs, (rank - 1) % ring)
    sending.wait()
    return theirs
