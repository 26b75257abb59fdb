"""The time that a layer takes as t grows: where tensor parallelism leaves the node, it falls off the bandwidth cliff.

Computation is divided by t. Communication is not: each rank sends 8bsh (t-1)/t elements for a block, nearly the same
for every t, and nothing else can be done meanwhile: the next product needs the sum. Inside a node the links are fast.
With t beyond the node the same bytes cross network cards, whose bandwidth is a small part of that.

The cost model is that of `dtlearn.collectives.cost`, the algorithm the faster of a ring and, across nodes, the
hierarchical one. Not in the model: products that become inefficient as they become narrow, and overlap. So it is too
kind to a large t, and too harsh where the input gradient's communication is overlapped.

Source of the number of operations: Narayanan et al., 2104.04473, appendix: 24bsh² + 4bs²h a block forward, twice as
many backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dtlearn.collectives import hierarchical, ring
from dtlearn.collectives.cost import plan_seconds
from dtlearn.collectives.topology import Topology

from .sizes import BlockSizes
from .traffic import block_traffic


class LayerTime(NamedTuple):
    """A block's forward and backward pass on t ranks.

    Attributes:
        num_ranks: t.
        computation, communication: seconds, one after the other.
        algorithm: of the all-reduces: "ring", "hierarchical", or "" with one rank.
        efficiency: of 1 where t ranks are t times as fast as one.
    """

    num_ranks: int
    computation: float
    communication: float
    algorithm: str
    efficiency: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole block."""
        return self.computation + self.communication


def block_flops(sizes: BlockSizes) -> int:
    """Floating-point operations of a block's products, forward and backward: 72bsh² (1 + s/6h)."""
    return 72 * sizes.bsh * sizes.hidden + 12 * sizes.bsh * sizes.length


def layer_times(
    sizes: BlockSizes,
    num_ranks: Iterable[int],
    topology: Topology,
    *,
    flops: float,
    element_bytes: int = 2,
) -> list[LayerTime]:
    """A block's time for each t.

    Args:
        sizes: of the block and the micro-batch.
        num_ranks: values of t, such as 1, 2, 4, 8, 16.
        topology: of the cluster; the ranks are its first t.
        flops: operations that a GPU reaches in a second, in products like these: some 40 to 60 % of its peak.
        element_bytes: of an activation.

    Raises:
        ValueError: a t that does not divide the heads.
    """
    whole = block_flops(sizes) / flops
    times = []
    for t in num_ranks:
        nbytes = element_bytes * sizes.bsh
        seconds, algorithm = all_reduce_seconds(t, nbytes, topology)
        communication = len(block_traffic(sizes, t)) * seconds
        computation = whole / t
        efficiency = whole / (t * (computation + communication))
        times.append(LayerTime(t, computation, communication, algorithm, efficiency))
    return times


def all_reduce_seconds(num_ranks: int, nbytes: float, topology: Topology) -> tuple[float, str]:
    """Time of an all-reduce by the faster algorithm, and its name.

    Args:
        num_ranks: the first ranks of the topology.
        nbytes: of the tensor.
        topology: where they are.
    """
    if num_ranks == 1:
        return 0.0, ""
    plans = [ring.all_reduce(num_ranks)]
    for level in topology.levels[1:]:
        if num_ranks > level.unit and num_ranks % level.unit == 0:
            plans.append(hierarchical.all_reduce(num_ranks, level.unit))
    return min((plan_seconds(plan, nbytes, topology), plan.algorithm) for plan in plans)
