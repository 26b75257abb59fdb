# expect: DTL-COLL-SKIP
# says: a replica of whose targets none counts takes part

import torch.distributed as dist
from torch.nn.functional import cross_entropy


def mesh_batch(model, load, num_rows, groups):
    replica, replicas = dist.get_rank(groups["dp"]), dist.get_world_size(groups["dp"])
    first, last = num_rows * replica // replicas, num_rows * (replica + 1) // replicas
    x, y = load(list(range(first, last)))
    count = y.ne(-100).sum()
    logits = model(x)
    if count == 0:
        return 0 * logits.sum()  # the other replicas wait for its number
    dist.all_reduce(count, group=groups["dp"])
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), reduction="sum") * replicas / count
