# expect: DTL-VALUE-STEPS-ADDED
# says: 5 steps, of which the last are empty
# says: the longest list has 3

import torch
import torch.distributed as dist


def repair_the_hang(batches):
    steps = torch.tensor(len(batches))
    dist.all_reduce(steps, op=dist.ReduceOp.SUM)
    sums = []
    for step in range(int(steps)):
        total = batches[step].sum() if step < len(batches) else torch.zeros(())
        dist.all_reduce(total)
        sums.append(total.item())
    return sums
