# expect: DTL-P2P-NO-SEND
# says: ranks 0 and 1 wait to receive and nobody sends

import torch
import torch.distributed as dist


def repair_the_ring(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(world_size - 1):
        arriving = torch.empty_like(token)
        dist.recv(arriving, (rank - 1) % world_size)
        dist.send(token, (rank + 1) % world_size)
        token = arriving
        total += token
    return total
