"""Clusters as the cost model sees them: ports, nodes, racks, and how fast each is.

A message from rank a to rank b uses a chain of links: its own port out, perhaps its node's network card, perhaps its
rack's uplink, and the same down again. Messages of one step that use the same link in the same direction share its
bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Level:
    """Links of one kind.

    Attributes:
        name: "NVLink", "network card", "rack uplink".
        unit: ranks of a node (rack, ...); a message crosses this level if it leaves its unit. 1: every message does.
        shared_by: so many ranks in a row share one such link; 1: every rank has its own.
        latency: alpha, seconds per message that crosses it.
        bandwidth: beta, bytes per second in each direction.
    """

    name: str
    unit: int
    shared_by: int
    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if self.shared_by < 1 or self.unit % self.shared_by or self.latency < 0 or self.bandwidth <= 0:
            raise ValueError(
                f"{self.name}: shared_by must divide the ranks of a unit ({self.unit}), the latency be 0 or more, "
                "the bandwidth positive"
            )


@dataclass(frozen=True)
class Topology:
    """Levels of links, from the innermost out.

    Attributes:
        name: for captions.
        levels: `levels[k].unit` grows with k.
    """

    name: str
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        units = [level.unit for level in self.levels]
        if units[:1] != [1] or any(b <= a for a, b in pairwise(units)):
            raise ValueError(f"the levels of {self.name} must begin with unit 1 and grow; got units of {units}")

    def path(self, src: int, dst: int) -> list[tuple[int, int, str]]:
        """The links that a message uses: (level, number of the link, "out" or "in")."""
        links = []
        for k, level in enumerate(self.levels):
            if src // level.unit == dst // level.unit:  # the message does not leave this unit
                break
            links += [(k, src // level.shared_by, "out"), (k, dst // level.shared_by, "in")]
        return links

    def latency(self, src: int, dst: int) -> float:
        """alpha of one message: that of the slowest kind of link on its way."""
        return max(self.levels[k].latency for k, _, _ in self.path(src, dst))


def flat(latency: float, bandwidth: float) -> Topology:
    """Every rank has a port of its own to a switch that is never the bottleneck."""
    return Topology("one link per rank", (Level("port", 1, 1, latency, bandwidth),))


def nodes(ranks_per_node: int, inside: tuple[float, float], between: tuple[float, float], cards: int = 1) -> Topology:
    """Nodes of fast links; `(latency, bandwidth)` of a link inside, and of one of the node's `cards` network cards."""
    if ranks_per_node % cards:
        raise ValueError(f"{cards} cards cannot be shared evenly by {ranks_per_node} ranks")
    return Topology(
        f"nodes of {ranks_per_node}, {cards} network card{'s' * (cards > 1)} each",
        (
            Level("inside a node", 1, 1, *inside),
            Level("network card", ranks_per_node, ranks_per_node // cards, *between),
        ),
    )


def racks(inside_racks: Topology, ranks_per_rack: int, bandwidth: float, latency: float) -> Topology:
    """The same nodes in racks, whose uplinks carry `bandwidth` bytes per second together, each way."""
    uplink = Level("rack uplinks", ranks_per_rack, ranks_per_rack, latency, bandwidth)
    return Topology(f"{inside_racks.name}, in racks of {ranks_per_rack}", (*inside_racks.levels, uplink))


# 8 H100 per node: NVLink 4 gives 450 GB/s per direction and GPU (NVIDIA H100 datasheet: 900 GB/s in both together);
# one ConnectX-7 card of 400 Gb/s for each GPU (NVIDIA DGX H100 user guide). The latencies are orders of magnitude.
DGX_H100 = nodes(8, inside=(3e-6, 450e9), between=(8e-6, 50e9), cards=8)
# 4 such nodes per rack, with uplinks for half of what their 32 cards can send ("oversubscribed 2 to 1"): an example of
# a network that was bought cheaply; NVIDIA's own reference design has uplinks for all of it.
RACKS_OF_DGX_H100 = racks(DGX_H100, 32, bandwidth=32 * 50e9 / 2, latency=10e-6)
