# expect: DTL-VALUE-PERMUTED
# says: on rank 0 the result[2] is rank 1's parts[0]; it should be rank 2's parts[0]

import torch
import torch.distributed as dist


def all_to_all(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = [torch.empty_like(parts[0])] * n
    out[rank] = parts[rank]
    for k in range(1, n):
        to, fr = (rank + k) % n, (rank - k) % n
        s = dist.isend(parts[to], to)
        dist.recv(out[fr], fr)
        s.wait()
    return out
