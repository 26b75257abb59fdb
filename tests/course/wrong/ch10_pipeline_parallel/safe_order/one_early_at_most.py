# expect: DTL-P2P-CYCLE
# says: this is with "1F1B that begins early"
from collections import deque

import torch
import torch.distributed as dist


def safe_order(orders, shape, forward, backward):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    left = deque(op for _, op, _ in orders[rank - 1]) if rank else deque()
    early = deque()

    def receive(source):
        arrived = torch.empty(shape)
        dist.recv(arrived, source)
        return arrived

    for _, op, microbatch in orders[rank]:
        if op == "F":
            if rank and not early:
                left.popleft()
                early.append(receive(rank - 1))
            result = forward(microbatch, early.popleft() if rank else None)
            if rank < last:
                dist.send(result, rank + 1)
        else:
            result = backward(microbatch, receive(rank + 1) if rank < last else None)
            for _ in range(1):
                if left and left[0] == "F":
                    left.popleft()
                    early.append(receive(rank - 1))
            if left and left[0] == "B":
                left.popleft()
            if rank:
                dist.send(result, rank - 1)
