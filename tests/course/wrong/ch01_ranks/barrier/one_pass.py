# expect: DTL-VALUE-EARLY
# says: rank 0 never hears that it has reached rank 2

import torch
import torch.distributed as dist


def barrier():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank > 0:
        dist.recv(token, rank - 1)
    if rank < world_size - 1:
        dist.send(token, rank + 1)
