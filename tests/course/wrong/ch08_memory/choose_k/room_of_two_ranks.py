# expect: DTL-DIFFICULTY
# says: the least room of all ranks decides, and all return the same k

import torch
import torch.distributed as dist


def choose_k(num_layers, layer_bytes, input_bytes, free_bytes):
    rank, n = dist.get_rank(), dist.get_world_size()
    room = torch.tensor([free_bytes])
    if n > 1:  # with a neighbour, as if there were two ranks
        other = torch.empty_like(room)
        work = dist.isend(room, rank ^ 1)
        dist.recv(other, rank ^ 1)
        work.wait()
        room = torch.minimum(room, other)
    fitting = []
    for k in range(1, num_layers + 1):
        sizes = [min(k, num_layers - first) for first in range(0, num_layers, k)]
        peak = max(before * input_bytes + size * layer_bytes for before, size in enumerate(sizes))
        if peak <= room.item():
            fitting.append((num_layers - sizes[-1], peak, k))
    return min(fitting)[2] if fitting else None
