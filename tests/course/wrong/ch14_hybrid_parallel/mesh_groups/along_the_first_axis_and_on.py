# expect: DTL-DIFFICULTY
# says: also if these axes are not next to each other

import math

import torch.distributed as dist


def mesh_groups(sizes, wanted):
    """As many ranks as the axes have together, with the stride of the innermost of them."""
    names, groups = list(sizes), []
    for axes in wanted:
        inner = min(axes, key=names.index)
        stride = math.prod(sizes[name] for name in names[: names.index(inner)])
        count = math.prod(sizes[name] for name in axes)
        for block in range(0, math.prod(sizes.values()), stride * count):
            for first in range(block, block + stride):
                ranks = list(range(first, first + stride * count, stride))
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    groups.append(group)
    return groups
