# expect: DTL-MISTAKE
# says: they are one and the same tensor

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    gathered = [x] * world_size
    arriving = torch.empty_like(x)
    for step in range(world_size - 1):
        sending = dist.isend(gathered[(rank - step) % world_size].clone(), right)
        dist.recv(arriving, left)
        sending.wait()
        gathered[(rank - step - 1) % world_size] = arriving
    return gathered
