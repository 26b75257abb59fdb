# expect: DTL-P2P-CYCLE
# says: send to each other and nobody receives

import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    received = [part.clone() for part in parts]
    for distance in range(1, world_size):
        to, source = (rank + distance) % world_size, (rank - distance) % world_size
        dist.send(parts[to], to)
        dist.recv(received[source], source)
    return received
