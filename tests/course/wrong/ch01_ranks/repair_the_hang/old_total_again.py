# expect: DTL-VALUE-TWICE
# says: the total of the step before
import torch
import torch.distributed as dist


def repair_the_hang(batches):
    n = torch.tensor(len(batches))
    dist.all_reduce(n, op=dist.ReduceOp.MAX)
    sums = []
    t = torch.zeros(())
    for i in range(int(n)):
        if i < len(batches):
            t = batches[i].sum()
        dist.all_reduce(t)
        sums.append(t.item())
    return sums
