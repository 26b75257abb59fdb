# expect: DTL-MISTAKE
# says: messages are mixed up

import torch
import torch.distributed as dist


def safe_order(orders, shape, forward, backward):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    left = [op for _, op, _ in orders[rank - 1]] if rank else []
    early = []

    def receive(source):
        dist.recv(arrived := torch.empty(shape), source)
        return arrived

    for _, op, k in orders[rank]:
        if op == "F":
            if rank and not early:
                early.append(receive(rank - 1))
                left.pop(0)
            result = forward(k, early.pop() if rank else None)
            if rank < last:
                dist.send(result, rank + 1)
        else:
            result = backward(k, receive(rank + 1) if rank < last else None)
            while rank and left.pop(0) == "F":
                early.append(receive(rank - 1))
            if rank:
                dist.send(result, rank - 1)
