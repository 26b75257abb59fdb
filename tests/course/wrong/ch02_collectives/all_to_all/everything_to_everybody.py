# expect: DTL-RULE-BYTES
# says: (2.00x)
# says: is the whole tensor

import torch
import torch.distributed as dist


def all_to_all(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = torch.stack(parts)
    received = [part.clone() for part in parts]
    for distance in range(1, world_size):
        source = (rank - distance) % world_size
        theirs = torch.empty_like(mine)
        sending = dist.isend(mine, (rank + distance) % world_size)
        dist.recv(theirs, source)
        sending.wait()
        received[source] = theirs[rank].clone()
    return received
