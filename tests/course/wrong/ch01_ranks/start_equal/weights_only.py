# expect: DTL-VALUE-FORGOTTEN
# says: its own 0.bias, 1.bias, 2.bias; all else
import torch.distributed as dist


def start_equal(model):
    for name, parameter in model.named_parameters():
        if "weight" in name:
            dist.broadcast(parameter.detach(), src=0)
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)
