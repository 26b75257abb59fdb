# expect: DTL-VALUE-EARLY
# says: no message comes to ranks 1 and 2

import torch
import torch.distributed as dist


def barrier():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank == 0:
        for other in range(1, world_size):
            dist.recv(token, other)
    else:
        dist.send(token, 0)
