# expect: DTL-VALUE-STALE
# says: still has its own message

import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank + 1 if rank % 2 == 0 else rank - 1
    if partner == dist.get_world_size():
        return None
    theirs = message.clone()
    if rank < partner:
        dist.send(message, partner)
    else:
        dist.recv(theirs, partner)
    return message.clone()
