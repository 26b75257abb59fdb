# expect: DTL-DIFFICULTY
# says: replicas have different numbers of targets that count

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def mesh_batch(model, load, num_rows, groups):
    """The mean of each row, and of them the mean of the rows that have one."""
    replica, n = dist.get_rank(groups["dp"]), num_rows // dist.get_world_size(groups["dp"])
    x, y = load(list(range(n * replica, n * replica + n)))
    losses = cross_entropy(model(x).transpose(1, 2), y, reduction="none").sum(1)
    counts = y.ne(-100).sum(1)
    rows = torch.tensor([float((counts > 0).sum())])
    dist.all_reduce(rows, group=groups["dp"])
    return (losses / counts.clamp(min=1)).sum() * dist.get_world_size(groups["dp"]) / rows.clamp(min=1)[0]
