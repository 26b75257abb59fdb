# expect: DTL-VALUE-STALE
# says: the sums of its own batches
import torch
import torch.distributed as dist


def repair_the_hang(batches):
    n = torch.tensor(len(batches))
    dist.all_reduce(n, op=dist.ReduceOp.MAX)
    return [batches[i].sum().item() if i < len(batches) else 0.0 for i in range(int(n))]
