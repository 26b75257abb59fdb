# expect: DTL-VALUE-PERMUTED
# says: in the order of arrival

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    gathered = [x.clone()]
    for _ in range(world_size - 1):
        gathered.append(torch.empty_like(x))
        sending = dist.isend(gathered[-2], (rank + 1) % world_size)
        dist.recv(gathered[-1], (rank - 1) % world_size)
        sending.wait()
    return gathered
