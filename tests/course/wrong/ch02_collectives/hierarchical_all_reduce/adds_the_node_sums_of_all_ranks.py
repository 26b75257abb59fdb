# expect: DTL-VALUE-FACTOR
# says: exactly 2x the reference
# says: 2 is the number of ranks in a node

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
    for ranks in (node, range(world_size)):
        chunks = x.view(-1).tensor_split(len(ranks))
        reduce_scatter(chunks, ranks)
        all_gather(chunks, ranks)
