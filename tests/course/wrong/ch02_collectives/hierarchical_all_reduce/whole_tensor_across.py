# expect: DTL-RULE-BYTES
# says: (1.75x)

import torch
import torch.distributed as dist


def reduce_scatter(chunks, ranks):
    size, here = len(ranks), ranks.index(dist.get_rank())
    for step in range(size - 1):
        target = chunks[(here - step - 2) % size]
        arriving = torch.empty_like(target)
        sending = dist.isend(chunks[(here - step - 1) % size], ranks[(here + 1) % size])
        dist.recv(arriving, ranks[(here - 1) % size])
        sending.wait()
        target += arriving


def all_gather(chunks, ranks):
    size, here = len(ranks), ranks.index(dist.get_rank())
    for step in range(size - 1):
        sending = dist.isend(chunks[(here - step) % size], ranks[(here + 1) % size])
        dist.recv(chunks[(here - step - 1) % size], ranks[(here - 1) % size])
        sending.wait()


def hierarchical_all_reduce(x, ranks_per_node):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    place = rank % ranks_per_node
    node = range(rank - place, rank - place + ranks_per_node)
    same_place = range(place, world_size, ranks_per_node)
    chunks = x.view(-1).tensor_split(len(node))
    reduce_scatter(chunks, node)
    all_gather(chunks, node)
    pieces = x.view(-1).tensor_split(len(same_place))
    reduce_scatter(pieces, same_place)
    all_gather(pieces, same_place)
