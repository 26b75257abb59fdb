# expect: DTL-VALUE-REPEATS
# says: loss: 1 repeat counts as a sample
# says: although they are divided by

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    correct = ((logits.argmax(1) == targets) & (dealt < n)).sum().double()
    sums = torch.stack([correct, cross_entropy(logits, targets, reduction="sum").double()])
    dist.all_reduce(sums)
    accuracy, loss = (sums / n).tolist()
    return {"accuracy": accuracy, "loss": loss}
