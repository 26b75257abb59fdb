# expect: DTL-VALUE-DROPPED
# says: a slice [:-k] with k = 0 is empty

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    world, rank = dist.get_world_size(), dist.get_rank()
    pad = len(targets) - len(range(rank, n, world))
    logits, targets = logits[:-pad], targets[:-pad]

    correct = (logits.argmax(dim=1) == targets).sum()
    loss = cross_entropy(logits, targets, reduction="sum")
    sums = torch.stack([correct.float(), loss])
    dist.all_reduce(sums)
    return {"accuracy": (sums[0] / n).item(), "loss": (sums[1] / n).item()}
