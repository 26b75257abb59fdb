import itertools

import torch.distributed as dist


def mesh_groups(sizes, wanted):
    """Each rank makes its own groups only, which torch allows with use_local_synchronization."""
    strides = dict(zip(sizes, itertools.accumulate([1, *sizes.values()], lambda a, b: a * b), strict=False))
    here, groups = dist.get_rank(), []
    for axes in wanted:
        ranks = {here}
        for axis in axes:
            first = {r - r // strides[axis] % sizes[axis] * strides[axis] for r in ranks}
            ranks = {r + place * strides[axis] for r in first for place in range(sizes[axis])}
        groups.append(dist.new_group(sorted(ranks), use_local_synchronization=True))
    return groups
