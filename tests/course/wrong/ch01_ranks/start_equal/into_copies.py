# expect: DTL-VALUE-STALE
# says: still has its own model

import torch.distributed as dist


def start_equal(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor.clone(), src=0)
