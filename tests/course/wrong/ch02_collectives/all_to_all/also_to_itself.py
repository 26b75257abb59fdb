# expect: DTL-P2P-UNMATCHED
# says: sends to itself

import torch
import torch.distributed as dist


def all_to_all(parts):
    n = dist.get_world_size()
    out = [torch.empty_like(p) for p in parts]
    works = [dist.isend(parts[d], d) for d in range(n)]
    for s in range(n):
        dist.recv(out[s], s)
    for w in works:
        w.wait()
    return out
