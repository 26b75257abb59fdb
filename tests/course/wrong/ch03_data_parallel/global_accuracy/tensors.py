# expect: DTL-VALUE-TYPE
# says: should be a number; it is a tensor

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    real = dealt < n
    logits, targets = logits[real], targets[real]
    s = torch.stack(
        [(logits.argmax(1) == targets).sum().double(), cross_entropy(logits, targets, reduction="sum").double()]
    )
    dist.all_reduce(s)
    return {"accuracy": s[0] / n, "loss": s[1] / n}
