# expect: DTL-MISTAKE
# says: what all tp ranks have whole counts on each of them

import torch
import torch.distributed as dist


def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    """One sum over all ranks, divided by the number of replicas; what is alike along tp is forgotten."""
    gradients = {n: p.grad for n, p in parameters.items() if p.grad is not None}
    total = torch.tensor(float(sum((g.double() ** 2).sum() for n, g in gradients.items() if n not in elsewhere)))
    dist.all_reduce(total)
    norm = (total / (1 if zero else dist.get_world_size(groups["dp"]))).sqrt().item()
    for g in gradients.values():
        g *= min(1.0, max_norm / (norm + 1e-6))
    return norm
