# expect: DTL-VALUE-UNTOLD
# says: in this call, its 2nd, it neither sends nor receives anything

import time

import torch
import torch.distributed as dist

first = []


def barrier():
    if dist.get_world_size() > 1 and not first:
        first.append(True)
        if dist.get_rank() == 0:
            dist.recv(torch.zeros(1))  # from any rank
        elif dist.get_rank() == 1:
            dist.send(torch.zeros(1), 0)
    time.sleep(0.15)  # long enough here
