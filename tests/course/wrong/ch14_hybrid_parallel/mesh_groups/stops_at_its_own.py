# expect: DTL-COLL-ORDER
# says: every rank makes all groups, also those after its own

import math

import torch.distributed as dist


def mesh_groups(sizes, wanted):
    def own_group(axes):
        """Return as soon as it is found: the groups after it are made by other ranks only."""
        for first in range(math.prod(sizes.values())):
            ranks = [r for r in range(math.prod(sizes.values())) if alike(first, r, axes)]
            if ranks[0] == first:
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    return group

    def alike(one, other, axes):
        for axis, size in sizes.items():
            if axis not in axes and one % size != other % size:
                return False
            one, other = one // size, other // size
        return True

    return [own_group(axes) for axes in wanted]
