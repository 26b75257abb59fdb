# expect: DTL-VALUE-NOT-IN-PLACE
# says: It must change in place (x.copy_(...), x += ...)

import torch
import torch.distributed as dist


def broadcast(x, root):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - root) % world_size
    have = 1
    while have < world_size:
        if place < have and place + have < world_size:
            dist.send(x, (rank + have) % world_size)
        elif have <= place < 2 * have:
            x = torch.empty_like(x)
            dist.recv(x, (rank - have) % world_size)
        have *= 2
