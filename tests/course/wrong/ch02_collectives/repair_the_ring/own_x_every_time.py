# expect: DTL-VALUE-REPEATED
# says: all sent their own x in every step

import torch
import torch.distributed as dist


def repair_the_ring(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = x.clone()
    for _ in range(world_size - 1):
        arriving = torch.empty_like(x)
        sending = dist.isend(x, (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        sending.wait()
        total += arriving
    return total
