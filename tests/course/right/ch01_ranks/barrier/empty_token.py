import torch
import torch.distributed as dist


def barrier():
    me, n = dist.get_rank(), dist.get_world_size()
    k = 1
    while k < n:
        s = dist.isend(torch.empty(0), (me + k) % n, tag=k)
        r = dist.irecv(torch.empty(0), (me - k) % n, tag=k)
        r.wait(), s.wait()
        k <<= 1
