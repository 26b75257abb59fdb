"""The process groups of a mesh. Every process makes every group, also those that it is in none of, in one order.

`dist.new_group` is a call of all processes: whoever skips the groups of others, or makes them in another order, leaves
the others waiting, or pairs two groups that are not one. The order is that of `MeshLayout.groups`, which does not
depend on the rank. `torch.distributed.device_mesh.init_device_mesh` does the same.

Several axes together make groups, too: what is the same on all ranks that differ in dp, ep and cp only is averaged over
these three at once. Where two kinds have the same ranks, as dp and dp x cp without cp, they share one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from .fit import check_layout
from .layout import KINDS_OF_GROUPS, Coordinates, MeshLayout, axes_in_use


@dataclass(frozen=True)
class AxisGroups:
    """This rank's group along each axis, and where it is in them.

    Attributes:
        layout: of the mesh.
        rank: of this process.
        coordinates: its place on each axis.
        tp: the ranks that have the other parts of its layers.
        pp: those that have the other stages of its pipeline.
        cp: those that have the other tokens of its rows.
        ep: those that have the other experts, and other rows.
        dp: those that have the same part of the same stage, and other tokens: the replicas, along dp, ep and cp.
        expert_dp: those that have the same experts, and other tokens: along dp and cp.
        tokens: all that have other tokens under sequence parallelism: along dp, ep, cp and tp.
    """

    layout: MeshLayout
    rank: int
    coordinates: Coordinates
    tp: dist.ProcessGroup
    pp: dist.ProcessGroup
    cp: dist.ProcessGroup
    ep: dist.ProcessGroup
    dp: dist.ProcessGroup
    expert_dp: dist.ProcessGroup
    tokens: dist.ProcessGroup


def make_groups(layout: MeshLayout) -> AxisGroups:
    """Make all groups of a mesh. Every process calls it.

    **Communication**: `dist.new_group` for each group: of N ranks N / tp calls for tp, N / pp for pp, and so on; of
    kinds that have the same ranks once.
    **Memory**: what a backend keeps for the groups of this rank.

    Args:
        layout: the same on all ranks.

    Raises:
        ValueError: the layout has another number of ranks than there are.
    """
    check_layout(layout, world_size=dist.get_world_size())
    rank, mine, made = dist.get_rank(), dict[str, dist.ProcessGroup](), dict[frozenset[str], dist.ProcessGroup]()
    for name, axes in KINDS_OF_GROUPS.items():
        used = frozenset(axes_in_use(layout, axes))
        if used not in made:
            for ranks in layout.groups(*axes):
                group = dist.new_group(list(ranks))
                if rank in ranks:
                    made[used] = group
        mine[name] = made[used]
    return AxisGroups(layout, rank, layout.coordinates(rank), **mine)
