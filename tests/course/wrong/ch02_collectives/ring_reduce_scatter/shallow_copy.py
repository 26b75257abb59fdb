# expect: DTL-MUTATED
# says: rank 0 changed what it was given: parts

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    parts = list(parts)
    r, n = dist.get_rank(), dist.get_world_size()
    for s in range(n - 1):
        c = (r - s - 2) % n
        got = torch.empty_like(parts[c])
        q = dist.isend(parts[(r - s - 1) % n], (r + 1) % n)
        dist.recv(got, (r - 1) % n)
        q.wait()
        parts[c] += got
    return parts[r]
