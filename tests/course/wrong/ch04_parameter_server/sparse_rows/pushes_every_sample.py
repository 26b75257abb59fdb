# expect: DTL-RULE-BYTES
# says: add up the gradients of a row before the push

from collections.abc import Callable

import torch
import torch.distributed as dist


def sparse_rows(
    num_servers: int,
    width: int,
    lr: float,
    table: torch.Tensor | None,
    sums: torch.Tensor | None,
    ids: torch.Tensor | None,
    gradient_of: Callable[[torch.Tensor], torch.Tensor] | None,
) -> None:
    """One step of this rank, a server or a worker."""
    if dist.get_rank() >= num_servers:
        rows, where = ids.unique(return_inverse=True)  # (k,), (batch,)
        places = [(rows % num_servers == server).nonzero().view(-1) for server in range(num_servers)]
        values = torch.empty(len(rows), width)
        for server, own in enumerate(places):
            dist.send(torch.tensor(len(own)), server)
            dist.send(rows[own], server)
        for server, own in enumerate(places):
            answer = torch.empty(len(own), width)
            dist.recv(answer, server)
            values[own] = answer
        gradient = gradient_of(values[where])
        for server in range(num_servers):
            mine = ids % num_servers == server
            dist.send(torch.tensor(int(mine.sum())), server)
            dist.send(ids[mine], server)
            dist.send(gradient[mine], server)
        return
    workers, asked, pushed = range(num_servers, dist.get_world_size()), [], []
    for worker in workers:
        count = torch.tensor(0)
        dist.recv(count, worker)
        rows = torch.empty(int(count), dtype=torch.int64)
        dist.recv(rows, worker)
        asked.append(rows // num_servers)
    for worker, own in zip(workers, asked, strict=True):
        dist.send(table[own], worker)
    idx = []
    for worker in workers:
        n = torch.tensor(0)
        dist.recv(n, worker)
        r = torch.empty(int(n), dtype=torch.int64)
        dist.recv(r, worker)
        idx.append(r // num_servers)
        pushed.append(torch.empty(int(n), width))
        dist.recv(pushed[-1], worker)
    rows, where = torch.cat(idx).unique(return_inverse=True)
    gradient = torch.zeros(len(rows), width).index_add_(0, where, torch.cat(pushed))
    sums[rows] += gradient**2
    table[rows] -= lr * gradient / (sums[rows].sqrt() + 1e-10)
