# expect: DTL-RULE-BYTES
# says: (1.50x)
# says: each of its 2 messages is the whole tensor

import torch
import torch.distributed as dist


def all_reduce(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = x.clone()
    for _ in range(world_size - 1):
        arriving = torch.empty_like(token)
        sending = dist.isend(token, (rank + 1) % world_size)
        dist.recv(arriving, (rank - 1) % world_size)
        sending.wait()
        token = arriving
        x += token
