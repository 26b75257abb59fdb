# expect: DTL-RULE-NAME
# says: threading.Thread: a send in a thread does not block the rank
import queue

import torch
import torch.distributed as dist


def safe_order(orders, shape, forward, backward):
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    threads = {rank - 1: [], rank + 1: []}

    def send(result, target, before):
        for thread in before:
            thread.join()
        dist.send(result, target)

    for _, op, microbatch in orders[rank]:
        source, target = (rank - 1, rank + 1) if op == "F" else (rank + 1, rank - 1)
        arrived = None
        if 0 <= source < num_ranks:
            arrived = torch.empty(shape)
            dist.recv(arrived, source)
        result = (forward if op == "F" else backward)(microbatch, arrived)
        if 0 <= target < num_ranks:
            thread = queue.threading.Thread(target=send, args=(result, target, threads[target][-1:]))
            thread.start()
            threads[target].append(thread)
    for thread in threads[rank - 1] + threads[rank + 1]:
        thread.join()
