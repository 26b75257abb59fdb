# expect: DTL-ASYNC-REUSE
# says: changed the tensor of an isend before its wait()

import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for distance in range(1, world_size):
        to, source = (rank + distance) % world_size, (rank - distance) % world_size
        sending = dist.isend(parts[to], to)
        dist.recv(parts[source], source)
        sending.wait()
    return parts
