# expect: DTL-VALUE-WRONG-CHUNK
# says: rank 0 ends with chunk 0 complete, and begins with chunk 1

import torch
import torch.distributed as dist


def all_reduce(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    chunks = x.view(-1).tensor_split(world_size)
    for step in range(world_size - 1):
        target = chunks[(rank - step - 2) % world_size]
        arriving = torch.empty_like(target)
        sending = dist.isend(chunks[(rank - step - 1) % world_size], right)
        dist.recv(arriving, left)
        sending.wait()
        target += arriving
    for step in range(world_size - 1):
        sending = dist.isend(chunks[(rank - step + 1) % world_size], right)
        dist.recv(chunks[(rank - step) % world_size], left)
        sending.wait()
