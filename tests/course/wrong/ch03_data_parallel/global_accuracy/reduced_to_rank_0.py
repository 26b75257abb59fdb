# expect: DTL-MISTAKE
# says: only rank 0 has the sums of all ranks

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    logits, targets = logits[dealt < n], targets[dealt < n]

    correct = (logits.argmax(1) == targets).sum().double()
    sums = torch.stack([correct, cross_entropy(logits, targets, reduction="sum").double()])
    dist.reduce(sums, dst=0)
    accuracy, loss = (sums / n).tolist()
    return {"accuracy": accuracy, "loss": loss}
