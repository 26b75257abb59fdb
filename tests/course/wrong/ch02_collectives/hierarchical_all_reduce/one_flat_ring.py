# expect: DTL-RULE-BYTES
# says: node 1 (ranks 2 and 3) sent 44 bytes to other nodes
# says: ranks_per_node is not used

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
    world_size = dist.get_world_size()
    chunks = x.view(-1).tensor_split(world_size)
    reduce_scatter(chunks, range(world_size))
    all_gather(chunks, range(world_size))
