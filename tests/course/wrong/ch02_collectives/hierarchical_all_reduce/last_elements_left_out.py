# expect: DTL-VALUE-TAIL
# says: 4 chunks of 1 do not cover the tensor

import torch
import torch.distributed as dist


def reduce_scatter(chunks, ranks):
    n, i = len(ranks), ranks.index(dist.get_rank())
    for k in range(n - 1):
        target = chunks[(i - k - 2) % n]
        buf = torch.empty_like(target)
        req = dist.isend(chunks[(i - k - 1) % n], ranks[(i + 1) % n])
        dist.recv(buf, ranks[(i - 1) % n])
        req.wait()
        target += buf


def all_gather(chunks, ranks):
    n, i = len(ranks), ranks.index(dist.get_rank())
    for k in range(n - 1):
        req = dist.isend(chunks[(i - k) % n], ranks[(i + 1) % n])
        dist.recv(chunks[(i - k - 1) % n], ranks[(i - 1) % n])
        req.wait()


def hierarchical_all_reduce(x, ranks_per_node):
    rank, n = dist.get_rank(), dist.get_world_size()
    node_id, place = divmod(rank, ranks_per_node)
    node = list(range(node_id * ranks_per_node, (node_id + 1) * ranks_per_node))
    peers = list(range(place, n, ranks_per_node))
    flat = x.view(-1)
    size = flat.numel() // ranks_per_node
    chunks = [flat[i * size : (i + 1) * size] for i in range(ranks_per_node)]
    pieces = chunks[place].tensor_split(len(peers))
    reduce_scatter(chunks, node)
    reduce_scatter(pieces, peers)
    all_gather(pieces, peers)
    all_gather(chunks, node)
