# expect: DTL-COLL-SKIP
# says: a rank whose list is empty has no overflow, and asks the others all the same

import torch
import torch.distributed as dist


def agree_on_overflow(gradients):
    found = [float(not g.isfinite().all()) for g in gradients if g is not None]
    if not found:  # nothing to say, it seems
        return False
    overflow = torch.tensor(max(found))
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return bool(overflow)
