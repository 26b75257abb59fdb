# expect: DTL-ASYNC-REUSE
# says: rank 1 changed the tensor of an isend
# says: it was sent before the wait() of the irecv that fills it

import torch.distributed as dist


def broadcast(x, root):
    rank, n = dist.get_rank(), dist.get_world_size()
    place, have, works = (rank - root) % n, 1, []
    while have < n:
        if place < have and place + have < n:
            works.append(dist.isend(x, (rank + have) % n))
        elif have <= place < 2 * have:
            works.append(dist.irecv(x, (rank - have) % n))
        have *= 2
    for work in works:
        work.wait()
