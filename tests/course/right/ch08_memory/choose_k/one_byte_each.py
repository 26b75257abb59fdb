import torch
import torch.distributed as dist


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    """The k in the order of their peaks: the least number of them that fits on a rank fits on all."""
    costs = {}
    for k in range(1, num_layers + 1):
        sizes = [min(k, num_layers - first) for first in range(0, num_layers, k)]
        peak = max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))
        costs[k] = num_layers - sizes[-1], peak
    order = sorted(costs, key=lambda k: costs[k][1])
    number = torch.tensor([sum(costs[k][1] <= free_bytes for k in order)], dtype=torch.uint8)
    dist.all_reduce(number, op=dist.ReduceOp.MIN)
    fitting = order[: number.item()]
    return min(fitting, key=costs.get, default=None)
