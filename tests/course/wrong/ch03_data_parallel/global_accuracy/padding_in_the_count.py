# expect: DTL-VALUE-COUNT
# says: the sums are right
# says: with the padding

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    count = len(targets) * dist.get_world_size()
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    logits, targets = logits[dealt < n], targets[dealt < n]
    correct = (logits.argmax(1) == targets).sum().double()
    sums = torch.stack([correct, cross_entropy(logits, targets, reduction="sum").double()])
    dist.all_reduce(sums)
    accuracy, loss = (sums / count).tolist()
    return {"accuracy": accuracy, "loss": loss}
