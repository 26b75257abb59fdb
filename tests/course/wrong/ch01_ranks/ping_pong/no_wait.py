# expect: DTL-VALUE-NAN
# says: are NaN

import torch
import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank + 1 if rank % 2 == 0 else rank - 1
    if partner == dist.get_world_size():
        return None
    theirs = torch.empty_like(message)
    sending = dist.isend(message, partner)
    receiving = dist.irecv(theirs, partner)
    sending.wait()
    result = theirs.clone()  # read before receiving.wait()
    receiving.wait()
    theirs = result
    return theirs
