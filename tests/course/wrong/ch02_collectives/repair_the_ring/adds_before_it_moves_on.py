# expect: DTL-VALUE-STEP
# says: what is added is the token that was sent

import torch
import torch.distributed as dist


def repair_the_ring(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(n - 1):
        arriving = torch.empty_like(token)
        req = dist.isend(token, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        req.wait()
        total += token
        token = arriving
    return total
