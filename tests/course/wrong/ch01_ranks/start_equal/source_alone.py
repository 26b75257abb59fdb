# expect: DTL-COLL-SKIP
# says: ended without making that call

import torch.distributed as dist


def start_equal(model):
    if dist.get_rank() == 0:
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
