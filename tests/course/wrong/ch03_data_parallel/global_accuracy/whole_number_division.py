# expect: DTL-VALUE-FLOOR
# says: the accuracy is 0: either it was rounded down to a whole number

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    logits, targets = logits[dealt < n], targets[dealt < n]

    correct = (logits.argmax(1) == targets).sum()
    dist.all_reduce(correct)
    loss = cross_entropy(logits, targets, reduction="sum")
    dist.all_reduce(loss)
    return {"accuracy": float(correct // n), "loss": loss.item() / n}
