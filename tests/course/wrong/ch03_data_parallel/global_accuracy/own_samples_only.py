# expect: DTL-VALUE-LOCAL
# says: nothing came from the other ranks

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    logits, targets = logits[dealt < n], targets[dealt < n]

    correct = (logits.argmax(1) == targets).double().mean()
    return {"accuracy": correct.item(), "loss": cross_entropy(logits, targets).item()}
