# expect: DTL-RULE-ROUNDS
# says: 11 messages follow one another
# says: 9 in a row are enough

import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    received = [part.clone() for part in parts]
    for source in range(world_size):
        for to in range(world_size):
            if source != to and rank == source:
                dist.send(parts[to], to)
            elif source != to and rank == to:
                dist.recv(received[source], source)
    return received
