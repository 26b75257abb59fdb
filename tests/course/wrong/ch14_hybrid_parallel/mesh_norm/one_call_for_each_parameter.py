# expect: DTL-COLL-SKIP
# says: a gradient that is None stays None

import torch.distributed as dist


def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    """Sum the squares of each parameter over all axes: the ranks of other stages have fewer of them, or more."""
    total = 0.0
    for name, p in sorted(parameters.items()):
        if p.grad is None:
            continue
        square = p.grad.square().sum().reshape(1)
        if name in elsewhere or (name in alike and dist.get_rank(groups["tp"])):
            square.zero_()
        dist.all_reduce(square, group=groups["tp"])
        dist.all_reduce(square, group=groups["pp"])
        if zero:
            dist.all_reduce(square, group=groups["dp"])
        total += square.item()
    norm = total**0.5
    for p in parameters.values():
        if p.grad is not None:
            p.grad *= min(1.0, max_norm / (norm + 1e-6))
    return norm
