# expect: DTL-WS
# says: right with 1 and 2 ranks, wrong with 3 and 4

import torch
import torch.distributed as dist


def all_reduce(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size > 1:
        theirs = torch.empty_like(x)
        sending = dist.isend(x, (rank + 1) % world_size)
        dist.recv(theirs, (rank - 1) % world_size)
        sending.wait()
        x += theirs
