import torch
import torch.distributed as dist


def ring_reduce_scatter(parts):
    r, n = dist.get_rank(), dist.get_world_size()
    acc = [p.clone() for p in parts]

    def send(t):
        if t.numel():
            dist.send(t, (r + 1) % n)

    def receive(t):
        if t.numel():
            dist.recv(t, (r - 1) % n)

    for c in range(r - 1, r - n, -1):
        room = torch.zeros_like(acc[c - 1])
        if r % 2:
            receive(room)
            send(acc[c])
        else:
            send(acc[c])
            receive(room)
        acc[c - 1] = torch.add(acc[c - 1], room)
    return acc[r]
