# expect: DTL-RULE-BYTES
# says: (2.00x)
# says: is the whole tensor

import torch
import torch.distributed as dist


def ring_all_gather(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    known = torch.zeros(world_size, *x.shape, dtype=x.dtype)
    known[rank] = x
    for step in range(world_size - 1):
        arriving = torch.empty_like(known)
        sending = dist.isend(known, right)
        dist.recv(arriving, left)
        sending.wait()
        known[(rank - step - 1) % world_size] = arriving[(rank - step - 1) % world_size]
    return list(known)
