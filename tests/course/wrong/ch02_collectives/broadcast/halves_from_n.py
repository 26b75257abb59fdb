# expect: DTL-VALUE-STALE
# says: the messages were 0 to 1; 3 is no power of two

import torch.distributed as dist


def broadcast(x, root):
    rank, n = dist.get_rank(), dist.get_world_size()
    place = (rank - root) % n
    distance = n // 2
    while distance >= 1:
        if place % (2 * distance) == 0:
            if place + distance < n:
                dist.send(x, (rank + distance) % n)
        elif place % (2 * distance) == distance:
            dist.recv(x, (rank - distance) % n)
        distance //= 2
