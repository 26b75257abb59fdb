# expect: DTL-VALUE-EARLY
# says: ranks 0 and 1 exchange with each other only, and no message comes to or from rank 2
import torch
import torch.distributed as dist


def barrier():
    rank, n = dist.get_rank(), dist.get_world_size()
    partner = rank ^ 1
    if partner >= n:
        return
    if rank < partner:
        dist.send(torch.zeros(1), partner)
        dist.recv(torch.zeros(1), partner)
    else:
        dist.recv(torch.zeros(1), partner)
        dist.send(torch.zeros(1), partner)
