# expect: DTL-COLL-SHAPE
# says: calls broadcast with shape (2, 1), rank 1 with shape (1,)

import torch.distributed as dist


def start_equal(model):
    tensors = list(model.state_dict().values())
    if dist.get_rank():
        tensors.reverse()
    for tensor in tensors:
        dist.broadcast(tensor, src=0)
