# expect: DTL-VALUE-UNTOLD
# says: each rank hears from its left neighbour only

import torch
import torch.distributed as dist


def barrier():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    sending = dist.isend(torch.zeros(1), (rank + 1) % world_size) if world_size > 1 else None
    if sending:
        dist.recv(token, (rank - 1) % world_size)
        sending.wait()
