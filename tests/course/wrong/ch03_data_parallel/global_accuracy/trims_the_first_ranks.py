# expect: DTL-VALUE-WRONG-PADDING
# says: the last sample of rank 0 does not count; the repeats are the last sample of rank 1

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    r, N = dist.get_rank(), dist.get_world_size()
    pad = len(targets) * N - n
    if r < pad:
        logits, targets = logits[:-1], targets[:-1]
    s = torch.stack(
        [(logits.argmax(1) == targets).sum().double(), cross_entropy(logits, targets, reduction="sum").double()]
    )
    dist.all_reduce(s)
    return {"accuracy": (s[0] / n).item(), "loss": (s[1] / n).item()}
