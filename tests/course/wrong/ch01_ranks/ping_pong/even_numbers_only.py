# expect: DTL-P2P-UNMATCHED
# says: rank 2 sends to rank 3, but the job has only 3 ranks

import torch
import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank + 1 if rank % 2 == 0 else rank - 1
    theirs = torch.empty_like(message)
    sending = dist.isend(message, partner)
    dist.recv(theirs, partner)
    sending.wait()
    return theirs
