# expect: DTL-RAISED
# says: KeyError: ('tp', 'pp')

import math

import torch.distributed as dist


def mesh_groups(sizes, wanted):
    made, stride, n = {}, 1, math.prod(sizes.values())
    for axis, size in sizes.items():
        for first in range(n):
            if first // stride % size == 0:
                ranks = list(range(first, first + stride * size, stride))
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    made[axis,] = group
        stride *= size
    return [made[tuple(axes)] for axes in wanted]
