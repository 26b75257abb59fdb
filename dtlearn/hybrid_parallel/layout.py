"""Ranks on a mesh, as data: rank <-> (pp, dp, ep, cp, tp), the groups along each axis, and who is whose neighbour.

    tp  tensor parallelism: the parts of each layer        pp  pipeline parallelism: the stages, one after the other
    cp  context parallelism: the parts of each sequence    dp  data parallelism: copies of the model, each its own rows
    ep  expert parallelism: the parts of the experts. Its ranks have rows of their own too, so for all that is not an
        expert they are more data parallelism

The ranks are numbered from the innermost axis outwards. With tp=2, pp=2, dp=2 in the order tp, pp, dp:

                 pp 0                  pp 1
    dp 0    rank 0   rank 1       rank 2   rank 3        tp goes from left to right in a pair: (0, 1), (2, 3), ...
    dp 1    rank 4   rank 5       rank 6   rank 7        pp: (0, 2), (1, 3), ...; dp: (0, 4), (1, 5), ...

Neighbouring numbers share a node, and so the fast link: the axis that talks most comes first. tp talks in every layer,
cp in every attention, ep in every expert layer, pp once for each micro-batch and cut, dp once a step.

Nothing here knows of a process. Sources: Narayanan et al., 2104.04473, section 3; Llama Team, 2407.21783, section
3.3.2, whose order is tp, cp, pp, dp; `torch.distributed.device_mesh.DeviceMesh`, with which a test compares it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

FROM_FAST_TO_SLOW = ("tp", "cp", "ep", "pp", "dp")
KINDS_OF_GROUPS = {  # along which axes; in this order they are made
    "tp": ("tp",),
    "pp": ("pp",),
    "dp": ("dp", "ep", "cp"),  # replicas: the same parameters, other tokens
    "expert_dp": ("dp", "cp"),  # replicas of experts
    "tokens": ("dp", "ep", "cp", "tp"),  # all that have tokens of their own, under sequence parallelism
    "cp": ("cp",),
    "ep": ("ep",),
}


class Coordinates(NamedTuple):
    """Where a rank is on each axis, from 0."""

    pp: int = 0
    dp: int = 0
    ep: int = 0
    cp: int = 0
    tp: int = 0


@dataclass(frozen=True)
class MeshLayout:
    """How many ranks each axis has, and in which order the axes number them.

    **Communication** and **Memory**: none.

    Attributes:
        tp, pp, dp, cp, ep: ranks along each axis; 1: there is none of that kind.
        order: all axes, from the innermost outwards: ranks that differ by one step along the first one have
            neighbouring numbers.

    Raises:
        ValueError: an axis that is no whole number of 1 or more, or an order that is not all five axes.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    order: tuple[str, ...] = FROM_FAST_TO_SLOW

    def __post_init__(self) -> None:
        for axis, size in self.sizes.items():
            if not is_whole(size):
                raise ValueError(f"{axis} must have a whole number of ranks, such as 2; got {size!r}")
            if size < 1:
                raise ValueError(f"{axis} must have 1 rank or more, got {size}")
        if not isinstance(self.order, tuple) or sorted(map(str, self.order)) != sorted(FROM_FAST_TO_SLOW):
            raise ValueError(
                f"order names each of {', '.join(FROM_FAST_TO_SLOW)} once, in a tuple, from the innermost axis "
                f"outwards; got {self.order!r}"
            )

    def __str__(self) -> str:
        """The axes that have several ranks, from the innermost outwards: `tp2 pp2 dp2`."""
        return " ".join(f"{axis}{self.sizes[axis]}" for axis in self.order if self.sizes[axis] > 1) or "1 rank"

    @property
    def sizes(self) -> dict[str, int]:
        """Ranks along each axis."""
        return {axis: getattr(self, axis) for axis in FROM_FAST_TO_SLOW}

    @property
    def world_size(self) -> int:
        """All ranks: the product of the axes."""
        return math.prod(self.sizes.values())

    @property
    def num_replicas(self) -> int:
        """Parts of the global batch: the ranks that differ in dp or ep have rows of their own."""
        return self.dp * self.ep

    @property
    def mesh_names(self) -> tuple[str, ...]:
        """The axes as `DeviceMesh` names its dimensions: from the outermost inwards."""
        return tuple(reversed(self.order))

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """The sizes of the axes, as `DeviceMesh` takes them."""
        return tuple(self.sizes[axis] for axis in self.mesh_names)

    def stride(self, axis: str) -> int:
        """By how much the rank's number grows with one step along an axis.

        Raises:
            ValueError: there is no such axis.
        """
        if axis not in self.order:
            raise ValueError(f"an axis is one of {', '.join(FROM_FAST_TO_SLOW)}; got {axis!r}")
        return math.prod(self.sizes[inner] for inner in self.order[: self.order.index(axis)])

    def coordinates(self, rank: int) -> Coordinates:
        """The coordinates of a rank.

        Raises:
            ValueError: there is no such rank.
        """
        if not is_whole(rank) or not 0 <= rank < self.world_size:
            raise ValueError(f"{self} has the ranks 0 to {self.world_size - 1}; got rank {rank!r}")
        return Coordinates(**{axis: rank // self.stride(axis) % size for axis, size in self.sizes.items()})

    def rank(self, coordinates: Coordinates) -> int:
        """The rank at these coordinates.

        Raises:
            ValueError: no rank has them.
        """
        for axis, place in coordinates._asdict().items():
            if not is_whole(place) or not 0 <= place < self.sizes[axis]:
                raise ValueError(f"{axis} has the places 0 to {self.sizes[axis] - 1} in {self}; got {axis}={place!r}")
        return sum(place * self.stride(axis) for axis, place in coordinates._asdict().items())

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """The ranks that differ from this one in these axes at most, itself among them, in ascending order."""
        steps = {axis: self.stride(axis) for axis in axes}
        ranks = [self.rank(self.coordinates(rank)._replace(**dict.fromkeys(axes, 0)))]
        for axis, step in steps.items():
            ranks = [other + place * step for other in ranks for place in range(self.sizes[axis])]
        return tuple(sorted(ranks))

    def groups(self, *axes: str) -> list[tuple[int, ...]]:
        """All groups along these axes, in one order on all ranks: that of their first ranks. Each rank is in one."""
        found: list[tuple[int, ...]] = []
        seen = set[int]()
        for rank in range(self.world_size):
            if rank not in seen:
                found.append(self.group(rank, *axes))
                seen.update(found[-1])
        return found

    def neighbour(self, rank: int, axis: str, step: int = 1) -> int:
        """The rank that is `step` places further along an axis; after the last place comes the first, as in a ring."""
        stride, size = self.stride(axis), self.sizes[axis]
        place: int = getattr(self.coordinates(rank), axis)
        return rank + ((place + step) % size - place) * stride

    def replica(self, rank: int) -> int:
        """Which part of the global batch a rank sees, from 0: by dp and ep. Peers along tp, cp, pp see it too."""
        mine = self.coordinates(rank)
        return mine.dp * self.ep + mine.ep


def axes_in_use(layout: MeshLayout, axes: Sequence[str] = FROM_FAST_TO_SLOW) -> tuple[str, ...]:
    """Those of the given axes that have several ranks."""
    return tuple(axis for axis in axes if layout.sizes[axis] > 1)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number: 2, not 2.0, nor "2", nor True."""
    return isinstance(value, int) and not isinstance(value, bool)
