# expect: DTL-VALUE-FROZEN
# says: no longer require gradients
import torch.distributed as dist


def start_equal(model):
    for t in [*model.parameters(), *model.buffers()]:
        t.requires_grad_(False)
        dist.broadcast(t, src=0)
