# expect: DTL-MISTAKE
# says: each replica divides by the number of its own targets

import torch.distributed as dist
from torch.nn.functional import cross_entropy


def mesh_batch(model, load, num_rows, groups):
    """What DDP does with a loss that is a mean; where no target counts, 0."""
    n = num_rows // dist.get_world_size(groups["dp"])
    x, y = load([n * dist.get_rank(groups["dp"]) + k for k in range(n)])
    losses = cross_entropy(model(x).transpose(1, 2), y, reduction="none")
    return losses.sum() / y.ne(-100).sum().clamp(min=1)
