# expect: DTL-VALUE-EARLY
# says: in this call, its 2nd, it neither sends nor receives
import torch
import torch.distributed as dist

done = False


def barrier():
    global done
    rank, n = dist.get_rank(), dist.get_world_size()
    if done:
        return
    for other in range(n):
        if rank == 0 and other:
            dist.recv(torch.zeros(1), other)
    if rank:
        dist.send(torch.zeros(1), 0)
        dist.recv(torch.zeros(1), 0)
    else:
        for other in range(1, n):
            dist.send(torch.zeros(1), other)
    done = True
