# expect: DTL-P2P-NO-SEND
# says: wait to receive and nobody sends

import torch
import torch.distributed as dist


def barrier():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    for other in range(world_size):
        if other != rank:
            dist.recv(token, other)
    for other in range(world_size):
        if other != rank:
            dist.send(token, other)
