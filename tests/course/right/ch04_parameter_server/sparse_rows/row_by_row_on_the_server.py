from collections import defaultdict

import torch
import torch.distributed as dist


def serve(num_servers, width, lr, table, sums):
    workers = range(num_servers, dist.get_world_size())
    counts = {worker: torch.zeros(1, dtype=torch.int32) for worker in workers}
    for receive in [dist.irecv(count, worker) for worker, count in counts.items()]:
        receive.wait()
    asked = {}
    for worker, count in counts.items():
        if count:
            asked[worker] = torch.empty(int(count), dtype=torch.int32)
            dist.recv(asked[worker], worker)
    for worker, rows in asked.items():
        dist.send(table[rows.long()], worker)
    total = defaultdict(lambda: torch.zeros(width))
    for worker, rows in asked.items():
        pushed = torch.empty(len(rows), width)
        dist.recv(pushed, worker)
        for row, gradient in zip(rows.tolist(), pushed, strict=True):
            total[row] = total[row] + gradient
    for row, gradient in total.items():
        sums[row] += gradient * gradient
        table[row] -= lr * gradient / (sums[row].sqrt() + 1e-10)


def sparse_rows(num_servers, width, lr, table, sums, ids, gradient_of):
    if table is not None:
        return serve(num_servers, width, lr, table, sums)
    places = {}  # a row of the table -> its place among the rows that are pulled
    for row in ids.tolist():
        places.setdefault(row, len(places))
    where = torch.tensor([places[row] for row in ids.tolist()])
    own = {server: [row for row in places if row % num_servers == server] for server in range(num_servers)}
    for server, rows in own.items():
        dist.send(torch.tensor([len(rows)], dtype=torch.int32), server)
        if rows:
            dist.send(torch.tensor([row // num_servers for row in rows], dtype=torch.int32), server)
    values = torch.empty(len(places), width)
    for server, rows in own.items():
        if rows:
            answer = torch.empty(len(rows), width)
            dist.recv(answer, server)
            values[[places[row] for row in rows]] = answer
    leaf = values.requires_grad_()
    picked = leaf[where]
    picked.backward(gradient_of(picked.detach()))
    for server, rows in own.items():
        if rows:
            dist.send(leaf.grad[[places[row] for row in rows]], server)
    return None
