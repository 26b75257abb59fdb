# expect: DTL-RULE-MEMORY
# says: bytes of new tensors

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
    gradient = torch.zeros_like(table).index_add_(0, torch.cat(asked), torch.cat(pushed))
    sums += gradient**2
    table -= lr * gradient / (sums.sqrt() + 1e-10)
