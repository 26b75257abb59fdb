# expect: DTL-COLL-ORDER
# says: each rank begins with its own group, or makes no other

import torch.distributed as dist


def mesh_groups(sizes, wanted):
    rank, strides, stride = dist.get_rank(), {}, 1
    for axis, size in sizes.items():
        strides[axis] = stride
        stride *= size
    groups = []
    for axes in wanted:
        ranks = [rank]
        for axis in axes:
            place = rank // strides[axis] % sizes[axis]
            ranks = [r + (other - place) * strides[axis] for r in ranks for other in range(sizes[axis])]
        groups.append(dist.new_group(ranks))  # the groups of other ranks are not made here
    return groups
