# expect: DTL-RULE-CALLS
# says: calls all_gather

import torch
import torch.distributed as dist


def ping_pong(message):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    all_messages = [torch.empty_like(message) for _ in range(world_size)]
    dist.all_gather(all_messages, message)
    return all_messages[rank ^ 1] if rank ^ 1 < world_size else None
