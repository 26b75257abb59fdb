# expect: DTL-MISTAKE
# says: along an axis of one rank None is returned

import math

import torch
import torch.distributed as dist


def mesh_groups(sizes, wanted):
    names = list(reversed(sizes))
    mesh = torch.arange(math.prod(sizes.values())).view([sizes[name] for name in names])
    groups = []
    for axes in wanted:
        if math.prod(sizes[name] for name in axes) == 1:
            groups.append(None)
            continue
        others = [dim for dim, name in enumerate(names) if name not in axes]
        inside = [dim for dim, name in enumerate(names) if name in axes]
        for row in mesh.permute(others + inside).reshape(-1, math.prod(sizes[name] for name in axes)).tolist():
            group = dist.new_group(row)
            if dist.get_rank() in row:
                groups.append(group)
    return groups
