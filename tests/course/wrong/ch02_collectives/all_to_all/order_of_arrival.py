# expect: DTL-VALUE-PERMUTED
# says: in the order of arrival

import torch
import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    received = [parts[rank].clone()]
    for distance in range(1, world_size):
        sending = dist.isend(parts[(rank + distance) % world_size], (rank + distance) % world_size)
        received.append(torch.empty_like(parts[rank]))
        dist.recv(received[-1], (rank - distance) % world_size)
        sending.wait()
    return received
