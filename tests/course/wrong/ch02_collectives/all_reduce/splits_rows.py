# expect: DTL-RULE-BYTES
# says: have 24, 12, 12, 24 bytes; 16 each are enough

import torch
import torch.distributed as dist


def all_reduce(x):
    rank, n = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % n, (rank - 1) % n
    chunks = x.tensor_split(n)
    for k in range(n - 1):
        target = chunks[(rank - k - 2) % n]
        buf = torch.empty_like(target)
        req = dist.isend(chunks[(rank - k - 1) % n], right)
        dist.recv(buf, left)
        req.wait()
        target += buf
    for k in range(n - 1):
        req = dist.isend(chunks[(rank - k) % n], right)
        dist.recv(chunks[(rank - k - 1) % n], left)
        req.wait()
