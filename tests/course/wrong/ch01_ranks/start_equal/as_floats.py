# expect: DTL-MISTAKE
# says: a buffer of whole numbers was sent as floats
import torch.distributed as dist


def start_equal(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        sent = tensor.detach().float()
        dist.broadcast(sent, src=0)
        tensor.detach().copy_(sent)
