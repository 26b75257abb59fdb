# expect: DTL-VALUE-BUFFERS
# says: still has its own buffers

import torch.distributed as dist


def start_equal(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
