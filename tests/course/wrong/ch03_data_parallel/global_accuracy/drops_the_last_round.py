# expect: DTL-VALUE-DROPPED
# says: 1 of 7 samples left out
# says: the last round

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    every = n // dist.get_world_size()
    logits, targets = logits[:every], targets[:every]
    correct = (logits.argmax(1) == targets).sum().double()
    sums = torch.stack([correct, cross_entropy(logits, targets, reduction="sum").double()])
    dist.all_reduce(sums)
    accuracy, loss = (sums / (every * dist.get_world_size())).tolist()
    return {"accuracy": accuracy, "loss": loss}
