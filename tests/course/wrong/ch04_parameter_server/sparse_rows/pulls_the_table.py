# expect: DTL-RULE-BYTES
# says: Pull each row once, not the table

import torch
import torch.distributed as dist


def sparse_rows(num_servers, width, lr, table, sums, ids, gradient_of):
    rank, n = dist.get_rank(), dist.get_world_size()
    workers = range(num_servers, n)
    if rank < num_servers:
        for worker in workers:
            dist.send(torch.tensor(len(table)), worker)
            dist.send(table, worker)
        asked, pushed = [], []
        for worker in workers:
            count = torch.tensor(0)
            dist.recv(count, worker)
            asked.append(torch.empty(int(count), dtype=torch.int64))
            pushed.append(torch.empty(int(count), width))
            dist.recv(asked[-1], worker)
            dist.recv(pushed[-1], worker)
        rows, where = torch.cat(asked).unique(return_inverse=True)
        gradient = torch.zeros(len(rows), width).index_add_(0, where, torch.cat(pushed))
        sums[rows] += gradient**2
        table[rows] -= lr * gradient / (sums[rows].sqrt() + 1e-10)
        return
    parts = []
    for server in range(num_servers):
        count = torch.tensor(0)
        dist.recv(count, server)
        parts.append(torch.empty(int(count), width))
        dist.recv(parts[-1], server)
    whole = torch.empty(sum(len(part) for part in parts), width)
    for server, part in enumerate(parts):
        whole[server::num_servers] = part
    rows, where = ids.unique(return_inverse=True)
    gradient = torch.zeros(len(rows), width).index_add_(0, where, gradient_of(whole[ids]))
    for server in range(num_servers):
        own = (rows % num_servers == server).nonzero().view(-1)
        dist.send(torch.tensor(len(own)), server)
        dist.send(rows[own] // num_servers, server)
        dist.send(gradient[own], server)
