# expect: DTL-P2P-UNMATCHED
# says: sends to itself
import torch
import torch.distributed as dist


def barrier():
    _me, n = dist.get_rank(), dist.get_world_size()
    for r in range(n):
        dist.isend(torch.zeros(1), r)
    for r in range(n):
        dist.recv(torch.zeros(1), r)
