# expect: DTL-COLL-ORDER
# says: rank 0 calls barrier, rank 1 calls all_reduce
# says: the ranks have 2 and 3 batches

import torch.distributed as dist


def repair_the_hang(batches):
    sums = []
    for batch in batches:
        total = batch.sum()
        dist.all_reduce(total)
        sums.append(total.item())
    dist.barrier()
    return sums
