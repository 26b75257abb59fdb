# expect: DTL-P2P-CYCLE
# says: ranks 0 and 1 send to each other and nobody receives

import torch.distributed as dist


def repair_the_ring(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(world_size - 1):
        dist.send(token, (rank + 1) % world_size)
        dist.recv(token, (rank - 1) % world_size)
        total += token
    return total
