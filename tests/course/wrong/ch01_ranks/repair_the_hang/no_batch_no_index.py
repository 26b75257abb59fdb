# expect: DTL-RAISED
# says: IndexError: list index out of range
# says: the ranks have 2 and 3 batches

import torch
import torch.distributed as dist


def repair_the_hang(batches):
    steps = torch.tensor(len(batches))
    dist.all_reduce(steps, op=dist.ReduceOp.MAX)
    sums = []
    for step in range(int(steps)):
        total = batches[step].sum()
        dist.all_reduce(total)
        sums.append(total.item())
    return sums
