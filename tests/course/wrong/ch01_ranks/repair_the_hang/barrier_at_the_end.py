# expect: DTL-COLL-ORDER
# says: rank 0 calls all_reduce, rank 1 calls barrier

import torch.distributed as dist


def repair_the_hang(batches):
    sums = []
    for batch in batches:
        total = batch.sum()
        dist.all_reduce(total)
        sums.append(total.item())
    dist.barrier()
    return sums
