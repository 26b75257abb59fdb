# expect: DTL-VALUE-REPEATS
# says: although they are divided by

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    correct = (logits.argmax(1) == targets).sum().double()
    sums = torch.stack([correct, cross_entropy(logits, targets, reduction="sum").double()])
    dist.all_reduce(sums)
    accuracy, loss = (sums / n).tolist()
    return {"accuracy": accuracy, "loss": loss}
