# expect: DTL-P2P-NO-SEND
# says: this is with "GPipe"

import torch
import torch.distributed as dist


def safe_order(orders, shape, forward, backward):
    rank, num_ranks, arrived = dist.get_rank(), dist.get_world_size(), {}
    steps = [(op, k, *((rank - 1, rank + 1) if op == "F" else (rank + 1, rank - 1))) for _, op, k in orders[rank]]

    def receive(op, k, source, _):
        if 0 <= source < num_ranks and (op, k) not in arrived:
            arrived[op, k] = torch.empty(shape)
            dist.recv(arrived[op, k], source)

    for i, step in enumerate(steps):
        receive(*step)
        op, k, _, target = step
        result = (forward if op == "F" else backward)(k, arrived.pop((op, k), None))
        if 0 <= target < num_ranks:
            if rank % 2 == 0 and i + 1 < len(steps) and steps[i + 1][2] == target:
                receive(*steps[i + 1])
            dist.send(result, target)
