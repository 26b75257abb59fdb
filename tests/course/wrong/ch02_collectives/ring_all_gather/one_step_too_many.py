# expect: DTL-RULE-BYTES
# says: it sent 2 messages; N - 1 steps, 1, are enough

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    gathered = [torch.empty_like(x) for _ in range(n)]
    gathered[rank].copy_(x)
    for step in range(n):
        arriving = torch.empty_like(x)
        s = dist.isend(gathered[(rank - step) % n], (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        s.wait()
        gathered[(rank - step - 1) % n] = arriving
    return gathered
