# expect: DTL-COLL-SKIP
# says: ended without making that call

import torch.distributed as dist


def repair_the_hang(batches):
    sums = []
    for batch in batches:
        total = batch.sum()
        dist.all_reduce(total)
        sums.append(total.item())
    return sums
