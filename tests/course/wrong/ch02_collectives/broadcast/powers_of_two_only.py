# expect: DTL-P2P-UNMATCHED
# says: rank 0 sends to rank 2

import torch.distributed as dist


def broadcast(x, root):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = (rank - root) % world_size
    have = 1
    while have < world_size:
        if place < have:
            dist.send(x, (rank + have) % world_size)
        elif have <= place < 2 * have:
            dist.recv(x, (rank - have) % world_size)
        have *= 2
