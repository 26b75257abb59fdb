# expect: DTL-COLL-SHAPE
# says: rank 0 calls broadcast with shape (5, 3), rank 1 with shape (2,)

import torch.distributed as dist


def start_equal(model):
    tensors = list(model.state_dict().values())
    if dist.get_rank():
        tensors.reverse()
    for tensor in tensors:
        dist.broadcast(tensor, src=0)
