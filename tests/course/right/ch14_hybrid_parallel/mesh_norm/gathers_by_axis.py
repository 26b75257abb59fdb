import torch
import torch.distributed as dist


def mesh_norm(parameters, groups, *, alike, elsewhere, zero, max_norm):
    """Two numbers on each rank, of what is divided and of what is alike; all sums from dp inwards, and by hand."""
    square = {True: 0.0, False: 0.0}
    for name, p in parameters.items():
        if name not in elsewhere and p.grad is not None:
            square[name in alike] += float((p.grad * p.grad).sum())
    numbers = torch.tensor([square[False], square[True]])
    for axis in ["dp"] * zero + ["pp", "tp"]:
        every = [torch.empty_like(numbers) for _ in range(dist.get_world_size(groups[axis]))]
        dist.all_gather(every, numbers, group=groups[axis])
        total = torch.stack(every).sum(0)
        numbers = torch.stack([total[0], every[0][1] if axis == "tp" else total[1]])
    norm = float(numbers.sum().sqrt())
    factor = max_norm / (norm + 1e-6)
    for p in parameters.values():
        if p.grad is not None and factor < 1:
            p.grad = p.grad * factor
    return norm
