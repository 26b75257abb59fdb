# expect: DTL-RULE-BYTES
# says: each worker's counted once

import torch
import torch.distributed as dist


def sparse_rows(num_servers, width, lr, table, sums, ids, gradient_of):
    if dist.get_rank() >= num_servers:
        rows, where = ids, torch.arange(len(ids))  # the server adds up
        places = [(rows % num_servers == server).nonzero().view(-1) for server in range(num_servers)]
        values = torch.empty(len(rows), width)
        for server, own in enumerate(places):
            dist.send(torch.tensor(len(own)), server)
            dist.send(rows[own], server)
        for server, own in enumerate(places):
            answer = torch.empty(len(own), width)
            dist.recv(answer, server)
            values[own] = answer
        gradient = torch.zeros_like(values).index_add_(0, where, gradient_of(values[where]))
        for server, own in enumerate(places):
            dist.send(gradient[own], server)
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
    for worker, own in zip(workers, asked, strict=True):
        pushed.append(torch.empty(len(own), width))
        dist.recv(pushed[-1], worker)
    rows, where = torch.cat(asked).unique(return_inverse=True)
    gradient = torch.zeros(len(rows), width).index_add_(0, where, torch.cat(pushed))
    sums[rows] += gradient**2
    table[rows] -= lr * gradient / (sums[rows].sqrt() + 1e-10)
