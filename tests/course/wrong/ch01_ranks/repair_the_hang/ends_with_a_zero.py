# expect: DTL-DIFFICULTY
# says: a sum of 0 does not say that no rank has a batch left
import torch
import torch.distributed as dist


def repair_the_hang(batches):
    sums, step = [], 0
    while True:
        total = batches[step].sum() if step < len(batches) else torch.zeros(())
        dist.all_reduce(total)
        if total == 0:
            return sums
        sums.append(total.item())
        step += 1
