# expect: DTL-VALUE-SOURCE
# says: all ranks have the gradients of rank 0

import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.broadcast(parameter.grad, src=0)
