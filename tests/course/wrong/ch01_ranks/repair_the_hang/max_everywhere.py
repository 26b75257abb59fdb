# expect: DTL-VALUE-LARGEST
# says: ReduceOp.MAX is for the number of steps
import torch
import torch.distributed as dist


def repair_the_hang(batches):
    steps = torch.tensor(len(batches))
    dist.all_reduce(steps, op=dist.ReduceOp.MAX)
    sums = []
    for step in range(int(steps)):
        total = batches[step].sum() if step < len(batches) else torch.zeros(())
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        sums.append(total.item())
    return sums
