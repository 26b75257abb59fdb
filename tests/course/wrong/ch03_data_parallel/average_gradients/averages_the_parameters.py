# expect: DTL-VALUE-PARAMETERS
# says: the parameters were averaged, and every rank still has its own gradients

import torch.distributed as dist


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()
