# expect: DTL-VALUE-OWN-PART
# says: the rank's own part is missing

import torch
import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    received = [torch.zeros_like(part) if world_size > 1 else part for part in parts]
    for distance in range(1, world_size):
        to, source = (rank + distance) % world_size, (rank - distance) % world_size
        sending = dist.isend(parts[to], to)
        dist.recv(received[source], source)
        sending.wait()
    return received
