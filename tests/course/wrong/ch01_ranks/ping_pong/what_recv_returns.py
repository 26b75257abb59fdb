# expect: DTL-VALUE-SENDER
# says: which is what recv returns
import torch
import torch.distributed as dist


def ping_pong(message):
    rank = dist.get_rank()
    partner = rank ^ 1
    if partner >= dist.get_world_size():
        return None
    theirs = torch.empty_like(message)
    if rank < partner:
        dist.send(message, partner)
        return dist.recv(theirs, partner)
    theirs = dist.recv(theirs, partner)
    dist.send(message, partner)
    return theirs
