# expect: DTL-MISTAKE
# says: a rank that has padding only divides 0 by 0

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    logits, targets = logits[dealt < n], targets[dealt < n]

    correct = (logits.argmax(1) == targets).double().mean()
    sums = torch.stack([correct, cross_entropy(logits, targets).double()]) * len(targets)
    dist.all_reduce(sums)
    accuracy, loss = (sums / n).tolist()
    return {"accuracy": accuracy, "loss": loss}
