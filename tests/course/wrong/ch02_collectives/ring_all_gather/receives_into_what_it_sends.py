# expect: DTL-ASYNC-REUSE
# says: before its wait(): what arrives is up to chance

import torch.distributed as dist


def ring_all_gather(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    gathered = [x.clone() for _ in range(world_size)]
    token = x.clone()
    for step in range(world_size - 1):
        sending = dist.isend(token, right)
        dist.recv(token, left)
        sending.wait()
        gathered[(rank - step - 1) % world_size].copy_(token)
    return gathered
