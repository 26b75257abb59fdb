# expect: DTL-VALUE-EARLY
# says: no message comes from ranks 1 and 2, so nobody can know

import torch
import torch.distributed as dist


def barrier():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    if rank == 0:
        sends = [dist.isend(token, other) for other in range(1, world_size)]
        for send in sends:
            send.wait()
    else:
        dist.recv(token, 0)
