# expect: DTL-MISTAKE
# says: each rank chooses the best k for its own room, and the smallest of these is taken

import torch
import torch.distributed as dist


def peak_of(num_layers, k, layer, inside):
    full, left = divmod(num_layers, k)
    whole = (full - 1) * inside + k * layer
    return max(whole, full * inside + left * layer) if left else whole


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    best, mine = None, 0
    for k in range(1, num_layers + 1):
        peak = peak_of(num_layers, k, layer_bytes, input_bytes)
        if peak <= free_bytes:
            rating = num_layers - (num_layers % k or k), peak
            if best is None or rating < best:
                best, mine = rating, k
    chosen = torch.tensor([mine])
    dist.all_reduce(chosen, op=dist.ReduceOp.MIN)
    return int(chosen) or None
