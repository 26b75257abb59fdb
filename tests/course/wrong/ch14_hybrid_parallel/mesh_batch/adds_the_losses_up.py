# expect: DTL-VALUE-NONE
# says: the result['gradient'] is None

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def mesh_batch(model, load, num_rows, groups):
    """The loss that people read, on all ranks, has no gradient of its own."""
    replica, replicas = dist.get_rank(groups["dp"]), dist.get_world_size(groups["dp"])
    n = num_rows // replicas
    x, y = load(list(range(n * replica, n * replica + n)))
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").detach()
    both = torch.stack([loss, y.ne(-100).sum().float()])
    dist.all_reduce(both, group=groups["dp"])
    return (both[0] / both[1].clamp(min=1)).requires_grad_()
