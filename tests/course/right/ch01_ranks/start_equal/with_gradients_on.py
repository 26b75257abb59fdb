import torch.distributed as dist


def start_equal(model):
    for p in model.parameters():
        dist.broadcast(p, src=0)
    for b in model.buffers():
        dist.broadcast(b, src=0)
