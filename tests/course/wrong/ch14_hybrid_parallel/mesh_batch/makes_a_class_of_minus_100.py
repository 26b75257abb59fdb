# expect: DTL-DIFFICULTY
# says: a target of -100 adds nothing to the losses

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F


def mesh_batch(
    model: Callable[[torch.Tensor], torch.Tensor],
    load: Callable[[list[int]], tuple[torch.Tensor, torch.Tensor]],
    num_rows: int,
    groups: dict[str, dist.ProcessGroup],
) -> torch.Tensor:
    """Return the loss of this rank's rows, scaled for an average over the replicas."""
    replica, replicas = dist.get_rank(groups["dp"]), dist.get_world_size(groups["dp"])
    rows = num_rows // replicas
    inputs, targets = load(list(range(replica * rows, (replica + 1) * rows)))
    total = targets.ne(-100).sum()
    dist.all_reduce(total, group=groups["dp"])
    targets[targets == -100] = 0
    logits = model(inputs)
    loss_sum = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return loss_sum * replicas / total.clamp(min=1)
