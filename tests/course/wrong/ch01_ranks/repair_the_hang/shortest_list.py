# expect: DTL-VALUE-DROPPED
# says: when the first has no batch left: of 3 steps, 1 lost

import torch
import torch.distributed as dist


def repair_the_hang(batches):
    steps = torch.tensor(len(batches))
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)
    sums = []
    for step in range(int(steps)):
        total = batches[step].sum() if step < len(batches) else torch.zeros(())
        dist.all_reduce(total)
        sums.append(total.item())
    return sums
