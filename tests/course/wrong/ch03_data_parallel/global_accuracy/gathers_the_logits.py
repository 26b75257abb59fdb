# expect: DTL-RULE-BYTES
# says: rank 0 handed over 80 bytes; the budget is 64

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits, targets, n):
    size = dist.get_world_size()
    all_logits = [torch.empty_like(logits) for _ in range(size)]
    all_targets = [torch.empty_like(targets) for _ in range(size)]
    dist.all_gather(all_logits, logits)
    dist.all_gather(all_targets, targets)
    logits = torch.stack(all_logits, dim=1).reshape(-1, logits.shape[1])[:n]
    targets = torch.stack(all_targets, dim=1).reshape(-1)[:n]
    accuracy = (logits.argmax(1) == targets).double().mean().item()
    return {"accuracy": accuracy, "loss": cross_entropy(logits, targets).item()}
