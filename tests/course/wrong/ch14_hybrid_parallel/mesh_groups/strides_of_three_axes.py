# expect: DTL-DIFFICULTY
# says: a mesh may have any number of axes

import math

import torch.distributed as dist


def mesh_groups(
    sizes: dict[str, int],
    wanted: list[tuple[str, ...]],
) -> list[dist.ProcessGroup]:
    """Return this rank's process group along the axes of each entry of `wanted`."""
    mine = []
    for axes in wanted:
        lots = {}
        for rank in range(math.prod(sizes.values())):
            others, stride = [], 1
            for axis, size in sizes.items():
                if axis not in axes:
                    others.append(rank // stride % size)
                stride *= size if axis in list(sizes)[:2] else 1
            lots.setdefault(tuple(others), []).append(rank)
        for ranks in lots.values():
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine.append(group)
    return mine
