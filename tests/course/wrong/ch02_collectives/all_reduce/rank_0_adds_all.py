# expect: DTL-RULE-BYTES
# says: each of its 2 messages is the whole tensor

import torch
import torch.distributed as dist


def all_reduce(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.send(x, 0)
        dist.recv(x, 0)
        return
    theirs = torch.empty_like(x)
    for other in range(1, world_size):
        dist.recv(theirs, other)
        x += theirs
    for other in range(1, world_size):
        dist.send(x, other)
