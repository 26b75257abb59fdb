# expect: DTL-RAISED
# says: raised IndexError
import torch
import torch.distributed as dist


def all_reduce(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = x.view(-1).chunk(n)
    for step in range(n - 1):
        target = chunks[(rank - step - 2) % n]
        arriving = torch.empty_like(target)
        s = dist.isend(chunks[(rank - step - 1) % n], (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        s.wait()
        target += arriving
    for step in range(n - 1):
        s = dist.isend(chunks[(rank - step) % n], (rank + 1) % n)
        dist.recv(chunks[(rank - step - 1) % n], (rank - 1) % n)
        s.wait()
