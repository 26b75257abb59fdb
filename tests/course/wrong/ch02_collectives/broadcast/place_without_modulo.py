# expect: DTL-P2P-CYCLE
# says: rank 0 sends before it has received anything, and the root is rank 1

import torch.distributed as dist


def broadcast(x, root):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = rank - root
    have = 1
    while have < n:
        if place < have and place + have < n:
            dist.send(x, (rank + have) % n)
        elif have <= place < 2 * have:
            dist.recv(x, (rank - have) % n)
        have *= 2
