"""Each step as one batch of a send and a receive."""

import torch
import torch.distributed as dist


def repair_the_ring(x: torch.Tensor) -> torch.Tensor:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(world_size - 1):
        arriving = torch.empty_like(token)
        ops = [
            dist.P2POp(dist.isend, token, (rank + 1) % world_size),
            dist.P2POp(dist.irecv, arriving, (rank - 1) % world_size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        token = arriving
        total += token
    return total
