# expect: DTL-P2P-NO-SEND
# says: ranks 0 and 1 wait to receive and nobody sends

import torch.distributed as dist


def broadcast(x, root):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    distance = 1
    while distance < world_size:
        dist.recv(x, (rank - distance) % world_size)
        dist.send(x, (rank + distance) % world_size)
        distance *= 2
