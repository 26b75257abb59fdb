# expect: DTL-MISTAKE
# says: its own x is missing

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    gathered = [torch.empty_like(x) for _ in range(n)]
    token = x
    for step in range(n - 1):
        s = dist.isend(token, (rank + 1) % n)
        token = gathered[(rank - step - 1) % n]
        dist.recv(token, (rank - 1) % n)
        s.wait()
    return gathered
