# expect: DTL-DIFFICULTY
# says: only sends and receives may change places

import torch
import torch.distributed as dist


def safe_order(orders, shape, forward, backward):
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    for _, op, k in sorted(orders[rank], key=lambda action: action[1] == "B"):
        source, target = (rank - 1, rank + 1) if op == "F" else (rank + 1, rank - 1)
        arrived = None
        if 0 <= source < num_ranks:
            arrived = torch.empty(shape)
            dist.recv(arrived, source)
        result = (forward if op == "F" else backward)(k, arrived)
        if 0 <= target < num_ranks:
            dist.send(result, target)
