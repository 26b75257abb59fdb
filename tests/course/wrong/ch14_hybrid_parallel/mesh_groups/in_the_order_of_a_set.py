# expect: DTL-COLL-ORDER
# says: not in one order; the order of a set

import math

import torch.distributed as dist


def mesh_groups(
    sizes: dict[str, int],
    wanted: list[tuple[str, ...]],
) -> list[dist.ProcessGroup]:
    """Return this rank's process group along the axes of each entry of `wanted`."""
    mine = {}
    for axes in set(wanted):
        lots = {}
        for rank in range(math.prod(sizes.values())):
            others, stride = [], 1
            for axis, size in sizes.items():
                if axis not in axes:
                    others.append(rank // stride % size)
                stride *= size
            lots.setdefault(tuple(others), []).append(rank)
        for ranks in lots.values():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine[axes] = group
    return [mine[axes] for axes in wanted]
