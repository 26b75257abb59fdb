# expect: DTL-ASYNC-REUSE
# says: changed the tensor of an isend before its wait()
# says: a receive overwrote it

import torch.distributed as dist


def repair_the_ring(x):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(world_size - 1):
        sending = dist.isend(token, (rank + 1) % world_size)
        dist.recv(token, (rank - 1) % world_size)
        sending.wait()
        total += token
    return total
