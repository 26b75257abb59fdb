# expect: DTL-VALUE-TWICE
# says: added an old one again

import torch
import torch.distributed as dist


def repair_the_hang(batches):
    steps = torch.tensor(len(batches))
    dist.all_reduce(steps, op=dist.ReduceOp.MAX)
    sums = []
    for step in range(int(steps)):
        total = batches[min(step, len(batches) - 1)].sum() if batches else torch.zeros(())
        dist.all_reduce(total)
        sums.append(total.item())
    return sums
