# expect: DTL-VALUE-OVERWRITTEN
# says: rank 0 got its own x back

import torch.distributed as dist


def repair_the_ring(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(n - 1):
        if rank % 2 == 0:
            dist.send(token, (rank + 1) % n)
            dist.recv(token, (rank - 1) % n)
        else:
            dist.recv(token, (rank - 1) % n)
            dist.send(token, (rank + 1) % n)
        total += token
    return total
