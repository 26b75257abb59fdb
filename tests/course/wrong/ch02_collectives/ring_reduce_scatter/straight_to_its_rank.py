# expect: DTL-RULE-ROUTE
# says: sends to rank 2; in this ring it may send to rank 1 only

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = parts[rank].clone()
    for distance in range(1, world_size):
        arriving = torch.empty_like(total)
        sending = dist.isend(parts[(rank + distance) % world_size], (rank + distance) % world_size)
        dist.recv(arriving, (rank - distance) % world_size)
        sending.wait()
        total += arriving
    return total
