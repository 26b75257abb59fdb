# expect: DTL-VALUE-ROUNDED
# says: as if rounded to 16 bits

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    world, rank = dist.get_world_size(), dist.get_rank()
    keep = torch.arange(len(targets)) * world + rank < n
    logits, targets = logits[keep], targets[keep]

    correct = (logits.argmax(dim=1) == targets).sum()
    loss = cross_entropy(logits, targets, reduction="sum")
    sums = torch.stack([correct.half(), loss.half()])
    dist.all_reduce(sums)
    return {"accuracy": (sums[0] / n).item(), "loss": (sums[1] / n).item()}
