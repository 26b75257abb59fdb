# expect: DTL-VALUE-FORGOTTEN
# says: its own 2.bias, a frozen parameter
import torch.distributed as dist


def start_equal(model):
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.broadcast(parameter.detach(), src=0)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
