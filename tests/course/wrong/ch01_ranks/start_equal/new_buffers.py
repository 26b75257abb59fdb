# expect: DTL-VALUE-REPLACED
# says: the buffers are new tensors
import torch.distributed as dist


def start_equal(model):
    for p in model.parameters():
        dist.broadcast(p.detach(), src=0)
    for m in model.modules():
        for name, b in m.named_buffers(recurse=False):
            new = b.clone()
            dist.broadcast(new, src=0)
            setattr(m, name, new)
