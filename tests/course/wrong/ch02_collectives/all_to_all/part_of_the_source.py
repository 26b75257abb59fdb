# expect: DTL-VALUE-PERMUTED
# says: the result[1] is rank 1's parts[2]; it should be rank 1's parts[0]

import torch.distributed as dist


def all_to_all(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = [p.clone() for p in parts]
    for k in range(1, n):
        to, fr = (rank + k) % n, (rank - k) % n
        s = dist.isend(parts[fr], to)
        dist.recv(out[fr], fr)
        s.wait()
    return out
