# expect: DTL-DIFFICULTY
# says: a rank without room takes part in what the ranks agree on

import torch
import torch.distributed as dist


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    choices = []
    for k in range(1, num_layers + 1):
        sizes = [min(k, num_layers - first) for first in range(0, num_layers, k)]
        peak = max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))
        choices.append((num_layers - sizes[-1], peak, k))
    if min(peak for _, peak, _ in choices) > free_bytes:
        return None
    least = torch.tensor(free_bytes)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return min(choice for choice in choices if choice[1] <= least)[2]
