"""Groups of 1, 2, 3 and 4 ranks among the same four, so that one start of ranks serves all sizes."""

import torch.distributed as dist

SIZES = (1, 2, 3, 4)


def in_groups(case, sizes=SIZES):
    """On each rank: `{t: case(group)}` for the groups of the first t ranks that it is in, if there are so many.

    A group that a rank is not in costs it nothing but to wait. The record has the calls of ranks 0 and 1 as "0,1".
    """
    results = {}
    for size in (size for size in sizes if size <= dist.get_world_size()):
        group = dist.new_group(list(range(size)))
        if dist.get_rank() < size:
            results[size] = case(group)
        dist.barrier()
    return results


def calls_of(record, size, rank=0):
    """(op, bytes) of a rank's calls in the group of the first `size` ranks, in order."""
    names = {",".join(map(str, range(size)))}
    return [(e.op, e.nbytes) for e in record.select(rank=rank) if e.group in names]
