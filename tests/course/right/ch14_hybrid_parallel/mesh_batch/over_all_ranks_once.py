import torch
import torch.distributed as dist
from torch.nn import functional


def mesh_batch(model, load, num_rows, groups):
    """Count over all ranks, where each number comes as often as a replica has ranks."""
    size = {name: dist.get_world_size(group) for name, group in groups.items()}
    step = num_rows // size["dp"]
    place = dist.get_group_rank(groups["dp"], dist.get_rank())
    inputs, targets = load(list(range(num_rows))[place * step : place * step + step])
    count = torch.tensor([int((targets >= 0).sum())], dtype=torch.float64)
    dist.all_reduce(count)
    count /= size["tp"] * size["pp"]
    losses = functional.cross_entropy(model(inputs).movedim(-1, 1), targets, reduction="none")
    return losses.sum() * (size["dp"] / max(1.0, float(count)))
