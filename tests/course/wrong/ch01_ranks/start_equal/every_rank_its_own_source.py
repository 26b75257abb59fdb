# expect: DTL-COLL-ROOT
# says: rank 0 calls broadcast with root 0, rank 1 with root 1

import torch.distributed as dist


def start_equal(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=dist.get_rank())
