# expect: DTL-RAISED
# says: RuntimeError: shape '[2, -1]' is invalid for input of size 3

import torch
import torch.distributed as dist


def all_reduce(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    chunks = x.view(world_size, -1)
    for step in range(world_size - 1):
        target = chunks[(rank - step - 2) % world_size]
        arriving = torch.empty_like(target)
        sending = dist.isend(chunks[(rank - step - 1) % world_size], right)
        dist.recv(arriving, left)
        sending.wait()
        target += arriving
    for step in range(world_size - 1):
        sending = dist.isend(chunks[(rank - step) % world_size], right)
        dist.recv(chunks[(rank - step - 1) % world_size], left)
        sending.wait()
