# expect: DTL-VALUE-SOURCE
# says: not of rank 0

import torch.distributed as dist


def start_equal(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=dist.get_world_size() - 1)
