# expect: DTL-VALUE-LOCAL
# says: over rank 0's samples alone

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    logits, targets = logits[dealt < n], targets[dealt < n]

    correct = (logits.argmax(1) == targets).double().mean()
    means = torch.stack([correct, cross_entropy(logits, targets).double()])
    dist.broadcast(means, src=0)
    accuracy, loss = means.tolist()
    return {"accuracy": accuracy, "loss": loss}
