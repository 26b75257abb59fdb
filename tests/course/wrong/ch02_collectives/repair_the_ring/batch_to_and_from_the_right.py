# expect: DTL-P2P-UNMATCHED
# says: rank 0 sends to rank 1
# says: missing too where rank 0 receives from rank 1

import torch
import torch.distributed as dist


def repair_the_ring(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(n - 1):
        arriving = torch.empty_like(token)
        ops = [dist.P2POp(dist.isend, token, (rank + 1) % n), dist.P2POp(dist.irecv, arriving, (rank + 1) % n)]
        for req in dist.batch_isend_irecv(ops):
            req.wait()
        token = arriving
        total += token
    return total
