# expect: DTL-DIFFICULTY
# says: and then updates it once

import torch
import torch.distributed as dist


def sparse_rows(num_servers, width, lr, table, sums, ids, gradient_of):
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
        gradient = torch.zeros_like(values).index_add_(0, where, gradient_of(values[where]))
        for server, own in enumerate(places):
            dist.send(gradient[own], server)
        return
    for worker in range(num_servers, dist.get_world_size()):
        count = torch.tensor(0)
        dist.recv(count, worker)
        rows = torch.empty(int(count), dtype=torch.int64)
        dist.recv(rows, worker)
        rows //= num_servers
        dist.send(table[rows], worker)
        gradient = torch.empty(len(rows), width)
        dist.recv(gradient, worker)
        sums[rows] += gradient**2
        table[rows] -= lr * gradient / (sums[rows].sqrt() + 1e-10)
