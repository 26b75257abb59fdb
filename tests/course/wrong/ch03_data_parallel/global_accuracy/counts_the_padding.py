# expect: DTL-VALUE-REPEATS
# says: 1 repeat counts as a sample
# says: this is the mean over the 8

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    correct = (logits.argmax(1) == targets).double().mean()
    sums = torch.stack([correct, cross_entropy(logits, targets).double()])
    dist.all_reduce(sums)
    accuracy, loss = (sums / dist.get_world_size()).tolist()
    return {"accuracy": accuracy, "loss": loss}
