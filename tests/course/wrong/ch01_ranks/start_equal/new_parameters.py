# expect: DTL-VALUE-REPLACED
# says: an optimizer made before

import torch
import torch.distributed as dist


def start_equal(model):
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            fresh = parameter.detach().clone()
            dist.broadcast(fresh, src=0)
            setattr(module, name, torch.nn.Parameter(fresh))
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
