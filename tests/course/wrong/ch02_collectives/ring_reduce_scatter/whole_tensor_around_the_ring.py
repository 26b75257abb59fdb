# expect: DTL-RULE-BYTES
# says: (2.00x)
# says: its only message is the whole tensor

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    token = torch.cat([part.reshape(-1) for part in parts])
    total = token.clone()
    for _ in range(world_size - 1):
        arriving = torch.empty_like(token)
        sending = dist.isend(token, right)
        dist.recv(arriving, left)
        sending.wait()
        token = arriving
        total += token
    return total.split([part.numel() for part in parts])[rank].view(parts[rank].shape)
