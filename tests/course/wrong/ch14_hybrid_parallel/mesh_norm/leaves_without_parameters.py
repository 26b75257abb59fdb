# expect: DTL-COLL-SKIP
# says: a rank without parameters takes part in the sums all the same

import torch
import torch.distributed as dist


def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    if not parameters:
        return 0.0  # the others wait for its number
    first = dist.get_rank(groups["tp"]) == 0
    counted = [n for n in parameters if n not in elsewhere and (first or n not in alike)]
    gradients = [parameters[n].grad for n in counted if parameters[n].grad is not None]
    total = torch.stack([g.pow(2).sum() for g in gradients]).sum()
    for name in ["tp", "pp", "dp"][: 2 + zero]:
        dist.all_reduce(total, group=groups[name])
    norm = float(total) ** 0.5
    if norm + 1e-6 > max_norm:
        for p in parameters.values():
            if p.grad is not None:
                p.grad.mul_(max_norm / (norm + 1e-6))
    return norm
