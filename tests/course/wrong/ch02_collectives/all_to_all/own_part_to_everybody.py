# expect: DTL-VALUE-SAME-PART
# says: every rank sent its own part

import torch
import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    received = [torch.empty_like(part) for part in parts]
    received[rank].copy_(parts[rank])
    for distance in range(1, world_size):
        to, source = (rank + distance) % world_size, (rank - distance) % world_size
        sending = dist.isend(parts[rank], to)
        dist.recv(received[source], source)
        sending.wait()
    return received
