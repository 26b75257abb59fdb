"""A policy of sending as data: in which order, in pieces of which size, and how much at once.

    fifo      what backward has finished first leaves first: the last layer's gradient, then the one before it
    priority  of what is ready, the layer nearest to the input leaves first: the next forward pass begins with it

Layers are numbered in the order of the forward pass, from 0. A partition is a piece of a layer's gradient. What has
been launched cannot be overtaken: a communicator runs its calls in the order in which they were issued. Priority acts
on what waits, so a limit on the bytes in flight, the *credit*, keeps partitions waiting.

Sources: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration" (ByteScheduler),
SOSP 2019, with docs/scheduling.md of its code (bytedance/byteps, branch bytescheduler): partitions, priority,
credit. Jayarajan et al., "Priority-based Parameter Propagation for Distributed DNN Training" (P3), arXiv:1905.03960:
slices and priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class GradientPartition(NamedTuple):
    """A piece of a layer's gradient, which is sent in one call.

    Attributes:
        layer: its number, from 0, in the order of the forward pass.
        number: of the piece within the layer, from 0.
        start, nbytes: where it begins in the layer's gradient, and its size, in bytes.
    """

    layer: int
    number: int
    start: int
    nbytes: int


@dataclass(frozen=True)
class SchedulingPolicy:
    """How gradients are sent.

    Args:
        order: "fifo" or "priority".
        partition_bytes: size of a partition; the last one of a layer is smaller. None: a layer is one.
        credit_bytes: a partition is launched while fewer bytes than these are in flight, so the last one may go beyond
            them. 1: one partition at a time. None: all that is ready is launched at once, which is FIFO in any order.
        barrier: the forward pass begins when all gradients are there, as with torch's DDP; False: each layer waits for
            its own.

    Raises:
        ValueError: another order, or a size below 1.
    """

    order: Literal["fifo", "priority"] = "priority"
    partition_bytes: int | None = None
    credit_bytes: int | None = None
    barrier: bool = False

    def __post_init__(self) -> None:
        if self.order not in ("fifo", "priority"):
            raise ValueError(f'order must be "fifo" or "priority"; got {self.order!r}')
        for name in ("partition_bytes", "credit_bytes"):
            if (size := getattr(self, name)) is not None and size < 1:
                raise ValueError(f"{name} must be 1 or more, or None for no limit; got {size!r}")

    def may_launch(self, in_flight: int) -> bool:
        """Whether the credit lets another partition leave while so many bytes are in flight."""
        return self.credit_bytes is None or in_flight < self.credit_bytes

    def choose(self, waiting: Sequence[GradientPartition]) -> GradientPartition:
        """The partition that leaves next.

        Args:
            waiting: partitions that are ready, at least one, in the order in which they became so.
        """
        return waiting[0] if self.order == "fifo" else min(waiting)  # by layer, then by number


DDP_LIKE = SchedulingPolicy("fifo", barrier=True)  # what is ready leaves at once; forward waits for everything


def partitions_of(
    layer_nbytes: Sequence[int], partition_bytes: int | None, itemsize: int = 1
) -> list[list[GradientPartition]]:
    """The partitions of each layer.

    Args:
        layer_nbytes: bytes of each layer's gradient.
        partition_bytes: of a partition; None: a layer is one.
        itemsize: bytes of an element, which is not cut: a partition is rounded down to whole ones, but to no fewer than
            one.

    Returns:
        `partitions[layer][number]`; a layer of no bytes has none.
    """
    found = []
    for layer, nbytes in enumerate(layer_nbytes):
        size = max(nbytes, 1) if partition_bytes is None else max(partition_bytes // itemsize, 1) * itemsize
        starts = range(0, nbytes, size)
        found.append([GradientPartition(layer, i, at, min(size, nbytes - at)) for i, at in enumerate(starts)])
    return found
