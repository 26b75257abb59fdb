# expect: DTL-VALUE-MISSING
# says: the rank's own x is missing

import torch
import torch.distributed as dist


def repair_the_ring(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    total, token = torch.zeros_like(x), x.clone()
    for _ in range(n - 1):
        arriving = torch.empty_like(token)
        sending = dist.isend(token, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        sending.wait()
        token = arriving
        total += token
    return total
