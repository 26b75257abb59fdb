# expect: DTL-VALUE-STALE
# says: rank 2 still has its own x

import torch.distributed as dist


def broadcast(x, root):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - root) % world_size
    have = 1
    while 2 * have < world_size:
        if place < have and place + have < world_size:
            dist.send(x, (rank + have) % world_size)
        elif have <= place < 2 * have:
            dist.recv(x, (rank - have) % world_size)
        have *= 2
