import torch
import torch.distributed as dist


def hierarchical_all_reduce(x, ranks_per_node):
    r, n, L = dist.get_rank(), dist.get_world_size(), ranks_per_node
    leader, m = r // L * L, n // L
    if r != leader:
        dist.send(x, leader)
        dist.recv(x, leader)
        return
    room = torch.empty_like(x)
    for o in range(r + 1, r + L):
        dist.recv(room, o)
        x += room
    c, node = x.view(-1).tensor_split(m), r // L
    right, left = (node + 1) % m * L, (node - 1) % m * L
    for k in range(2 * m - 2):
        target = c[(node - k - 1) % m]
        room = torch.empty_like(target)
        s = dist.isend(c[(node - k) % m], right)
        dist.recv(room, left)
        s.wait()
        if k < m - 1:
            target += room
        else:
            target.copy_(room)
    for o in range(r + 1, r + L):
        dist.send(x, o)
