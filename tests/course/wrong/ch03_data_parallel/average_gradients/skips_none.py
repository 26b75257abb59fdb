# expect: DTL-COLL-SHAPE
# says: rank 0 calls all_reduce with shape (2, 3), rank 1 with shape (3, 3), as call number 4

import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
