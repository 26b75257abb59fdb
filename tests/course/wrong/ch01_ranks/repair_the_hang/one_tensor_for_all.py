# expect: DTL-VALUE-LAST
# says: every step has the sum of the last one
import torch
import torch.distributed as dist


def repair_the_hang(batches):
    n = torch.tensor(len(batches))
    dist.all_reduce(n, op=dist.ReduceOp.MAX)
    sums = []
    t = torch.zeros(())
    for i in range(int(n)):
        t.zero_()
        if i < len(batches):
            t += batches[i].sum()
        dist.all_reduce(t)
        sums.append(t)
    return [float(t) for t in sums]
