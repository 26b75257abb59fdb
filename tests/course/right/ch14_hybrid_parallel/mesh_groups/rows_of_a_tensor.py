import math

import torch
import torch.distributed as dist


def mesh_groups(sizes, wanted):
    names = list(reversed(sizes))
    mesh = torch.arange(math.prod(sizes.values())).view([sizes[name] for name in names])
    groups = []
    for axes in wanted:
        inside = [names.index(name) for name in axes]
        rows = mesh.movedim(inside, list(range(-len(inside), 0))).flatten(-len(inside)).reshape(-1, len_of(sizes, axes))
        mine, _ = dist.new_subgroups_by_enumeration(rows.tolist())
        groups.append(mine)
    return groups


def len_of(sizes, axes):
    return math.prod(sizes[axis] for axis in axes)
