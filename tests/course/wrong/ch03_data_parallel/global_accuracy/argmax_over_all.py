# expect: DTL-VALUE-FLOOR
# says: no prediction is compared with its target

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def global_accuracy(logits: torch.Tensor, targets: torch.Tensor, n: int) -> dict[str, float]:
    """Accuracy and mean loss over the n samples of all ranks."""
    dealt = torch.arange(len(targets)) * dist.get_world_size() + dist.get_rank()
    real = dealt < n
    logits, targets = logits[real], targets[real]
    correct = (logits.argmax() == targets).sum()
    loss = cross_entropy(logits, targets, reduction="sum")
    sums = torch.stack([correct.double(), loss.double()])
    dist.all_reduce(sums)
    accuracy, mean_loss = (sums / n).tolist()
    return {"accuracy": accuracy, "loss": mean_loss}
