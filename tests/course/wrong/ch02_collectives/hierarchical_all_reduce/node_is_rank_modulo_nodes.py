# expect: DTL-RULE-BYTES
# says: 56 bytes to other nodes; the budget is 32 (1.75x)
# says: in another node, before its node has added anything up


import torch
import torch.distributed as dist


def rs(chunks, ranks):
    rank, n = dist.get_rank(), len(ranks)
    i = ranks.index(rank)
    for s in range(n - 1):
        t = chunks[(i - s - 2) % n]
        got = torch.empty_like(t)
        q = dist.isend(chunks[(i - s - 1) % n], ranks[(i + 1) % n])
        dist.recv(got, ranks[(i - 1) % n])
        q.wait()
        t += got


def ag(chunks, ranks):
    rank, n = dist.get_rank(), len(ranks)
    i = ranks.index(rank)
    for s in range(n - 1):
        q = dist.isend(chunks[(i - s) % n], ranks[(i + 1) % n])
        dist.recv(chunks[(i - s - 1) % n], ranks[(i - 1) % n])
        q.wait()


def hierarchical_all_reduce(x, ranks_per_node):
    r, N, L = dist.get_rank(), dist.get_world_size(), ranks_per_node
    M = N // L
    node, place = r // L, r % L
    inside = list(range(node * L, node * L + L))
    across = list(range(place, N, L))
    node, place = r % M, r // M
    inside = list(range(node, N, M))
    across = list(range(place * M, place * M + M))
    ch = x.view(-1).tensor_split(L)
    rs(ch, inside)
    p = ch[place].tensor_split(M)
    rs(p, across)
    ag(p, across)
    ag(ch, inside)
