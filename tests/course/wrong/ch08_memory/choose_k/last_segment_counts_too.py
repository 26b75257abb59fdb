# expect: DTL-VALUE-K-LAST
# says: the last segment is not recomputed
import torch
import torch.distributed as dist


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    room = torch.tensor(free_bytes)
    dist.all_reduce(room, op=dist.ReduceOp.MIN)
    fitting = []
    for k in range(1, num_layers + 1):
        sizes = [min(k, num_layers - first) for first in range(0, num_layers, k)]
        peak = max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))
        recomputed = num_layers if len(sizes) > 1 else 0
        if peak <= room.item():
            fitting.append((recomputed, peak, k))
    return min(fitting)[2] if fitting else None
