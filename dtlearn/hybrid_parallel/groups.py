"""The process groups of a mesh. Every process makes every group, also those that it is in none of, in one order.

`dist.new_group` is a call of all processes: whoever skips the groups of others, or makes them in another order, leaves
the others waiting, or pairs two groups that are not one. The order is that of `MeshLayout.groups`, which does not
depend on the rank. `torch.distributed.device_mesh.init_device_mesh` does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from .fit import check_layout
from .layout import Coordinates, MeshLayout


@dataclass(frozen=True)
class AxisGroups:
    """This rank's group along each axis, and where it is in them.

    Attributes:
        layout: of the mesh.
        rank: of this process.
        coordinates: its place on each axis.
        tp: the ranks that have the other parts of its layers.
        pp: those that have the other stages of its pipeline.
        dp: those that have the same part of the same stage, and other rows: the replicas, along dp and ep.
    """

    layout: MeshLayout
    rank: int
    coordinates: Coordinates
    tp: dist.ProcessGroup
    pp: dist.ProcessGroup
    dp: dist.ProcessGroup


def make_groups(layout: MeshLayout) -> AxisGroups:
    """Make all groups of a mesh. Every process calls it.

    **Communication**: `dist.new_group` for each group: N / tp + N / pp + N / dp calls on N ranks.
    **Memory**: what a backend keeps for the three groups of this rank.

    Args:
        layout: the same on all ranks.

    Raises:
        ValueError: the layout has another number of ranks than there are.
    """
    check_layout(layout, world_size=dist.get_world_size())
    rank, mine = dist.get_rank(), dict[str, dist.ProcessGroup]()
    for name, axes in (("tp", ("tp",)), ("pp", ("pp",)), ("dp", ("dp", "ep"))):
        for ranks in layout.groups(*axes):
            group = dist.new_group(list(ranks))
            if rank in ranks:
                mine[name] = group
    return AxisGroups(layout, rank, layout.coordinates(rank), **mine)
