# expect: DTL-RULE-CALLS
# says: calls all_reduce

import torch.distributed as dist


def repair_the_ring(x):
    total = x.clone()
    dist.all_reduce(total)
    return total
