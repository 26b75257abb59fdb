import torch
import torch.distributed as dist


def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    """Count on one rank of each dp group, and add up over all ranks at once."""
    gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
    total = torch.zeros(1, dtype=torch.float64)
    if zero or dist.get_rank(groups["dp"]) == 0:
        for name in gradients.keys() - elsewhere:
            if name not in alike or dist.get_rank(groups["tp"]) == 0:
                total += torch.linalg.vector_norm(gradients[name].double()) ** 2
    dist.all_reduce(total)
    norm = total.sqrt().item()
    if norm + 1e-6 > max_norm:
        for gradient in gradients.values():
            gradient.mul_(max_norm / (norm + 1e-6))
    return norm
