# expect: DTL-VALUE-SOURCE
# says: all ranks have the x of rank 0, but the root is rank 1

import torch.distributed as dist


def broadcast(x, root):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    have = 1
    while have < world_size:
        if rank < have and rank + have < world_size:
            dist.send(x, rank + have)
        elif have <= rank < 2 * have:
            dist.recv(x, rank - have)
        have *= 2
