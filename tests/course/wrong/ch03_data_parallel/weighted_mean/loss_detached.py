# expect: DTL-VALUE-NO-GRAPH
# says: the returned loss has no graph

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    both = torch.stack([loss_sum.detach(), torch.tensor(float(count))])
    dist.all_reduce(both)
    return both[0] / both[1]
