# expect: DTL-VALUE-UNTOLD
# says: told rank 0 that rank 1 had come: each rank hears from its left neighbour only
# says: 3 ranks need 2 rounds: log2(N) rounded up
import math

import torch
import torch.distributed as dist


def barrier():
    me, n = dist.get_rank(), dist.get_world_size()
    t = torch.zeros(1)
    for k in range(int(math.log2(n))):
        w = dist.isend(torch.zeros(1), (me + 2**k) % n)
        dist.recv(t, (me - 2**k) % n)
        w.wait()
