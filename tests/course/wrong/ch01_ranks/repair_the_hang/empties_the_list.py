# expect: DTL-MUTATED
# says: changed what it was given: batches
import torch
import torch.distributed as dist


def repair_the_hang(batches):
    n = torch.tensor(len(batches))
    dist.all_reduce(n, op=dist.ReduceOp.MAX)
    sums = []
    for _i in range(int(n)):
        t = batches.pop(0).sum() if batches else torch.zeros(())
        dist.all_reduce(t)
        sums.append(t.item())
    return sums
