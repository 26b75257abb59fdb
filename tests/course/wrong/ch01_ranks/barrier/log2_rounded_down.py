# expect: DTL-VALUE-UNTOLD
# says: that is of 2 ranks with itself
# says: 3 ranks need 2 rounds: log2(N) rounded up

import math

import torch
import torch.distributed as dist


def barrier():
    r, n = dist.get_rank(), dist.get_world_size()
    t = torch.zeros(1)
    for k in range(int(math.log2(n))):
        d = 2**k
        q = dist.isend(torch.zeros(1), (r + d) % n)
        dist.recv(t, (r - d) % n)
        q.wait()
