# expect: DTL-MISTAKE
# says: the all-gather begins with a chunk that is not complete on the rank

import torch
import torch.distributed as dist


def all_reduce(x):
    r, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return
    right, left = (r + 1) % n, (r - 1) % n
    ch = x.view(-1).tensor_split(n)
    for s in range(n - 1):
        q = dist.isend(ch[(r - s) % n], right)
        got = torch.empty_like(ch[(r - s - 1) % n])
        dist.recv(got, left)
        q.wait()
        ch[(r - s - 1) % n].add_(got)
    for s in range(n - 1):
        q = dist.isend(ch[(r - s) % n], right)
        dist.recv(ch[(r - s - 1) % n], left)
        q.wait()
