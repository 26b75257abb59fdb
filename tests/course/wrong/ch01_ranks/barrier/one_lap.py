# expect: DTL-VALUE-UNTOLD
# says: goes once around the ring: only ranks 0 and 2
import torch
import torch.distributed as dist


def barrier():
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return
    token = torch.zeros(1)
    if rank == 0:
        dist.send(token, 1)
        dist.recv(token, n - 1)
    else:
        dist.recv(token, rank - 1)
        dist.send(token, (rank + 1) % n)
