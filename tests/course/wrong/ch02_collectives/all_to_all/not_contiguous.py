# expect: DTL-RAISED
# says: input tensor has to be contiguous, line 1

import torch
import torch.distributed as dist


def all_to_all(parts):
    rank, n = dist.get_rank(), dist.get_world_size()
    table = torch.stack(parts, dim=-1)
    out = torch.empty_like(table)
    out[..., rank] = table[..., rank]
    for k in range(1, n):
        to, fr = (rank + k) % n, (rank - k) % n
        s = dist.isend(table[..., to].contiguous(), to)
        dist.irecv(out[..., fr], fr).wait()
        s.wait()
    return list(out.unbind(-1))
