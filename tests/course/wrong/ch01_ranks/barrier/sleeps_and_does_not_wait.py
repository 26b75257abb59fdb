# expect: DTL-VALUE-UNTOLD
# says: told rank 0 that rank 1 had come: no rank sends anything

import time

import torch
import torch.distributed as dist

receives = []


def barrier():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size > 1:
        receives.append(dist.irecv(torch.zeros(1), (rank + 1) % world_size))  # which nobody sends
    time.sleep(0.15)  # long enough here
