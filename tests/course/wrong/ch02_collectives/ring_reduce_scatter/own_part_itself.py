# expect: DTL-VALUE-NOT-NEW
# says: what is returned is the part that was given, not a new tensor
import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    partial = parts[(rank - 1) % n]
    for step in range(n - 1):
        mine = parts[(rank - 2 - step) % n]
        arriving = torch.empty_like(mine)
        sending = dist.isend(partial, (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        sending.wait()
        partial = arriving + mine
    return partial
