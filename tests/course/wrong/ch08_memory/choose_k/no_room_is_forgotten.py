# expect: DTL-RAISED
# says: min() arg is an empty sequence

import torch
import torch.distributed as dist


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    least = torch.tensor(free_bytes)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    fitting = []
    for k in range(1, num_layers + 1):
        sizes = [min(k, num_layers - first) for first in range(0, num_layers, k)]
        peak = max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))
        if peak <= least:
            fitting.append((num_layers - sizes[-1], peak, k))
    return min(fitting)[2]
