"""A policy on a link, over the size of its partitions: what a slider of link, partition and credit draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from .makespan_curves import makespan_curves

if TYPE_CHECKING:
    from dtlearn.communication_scheduling.policy import SchedulingPolicy
    from dtlearn.communication_scheduling.simulate import LayerTimes

LIKE_DDP = "FIFO, forward waits for all"


def policy_makespan(
    times: LayerTimes,
    seconds: Callable[[float], float],
    policy: SchedulingPolicy,
    sizes: Sequence[int],
    measured: Mapping[int, float] | None = None,
    measured_ddp: float | None = None,
    title: str = "The makespan over the size of a partition",
    label: str = "",
) -> Figure:
    """Draw the simulated makespan of a policy with each of these sizes, and of FIFO with a layer in one and a barrier.

    The policy's own size is marked; if it has none, the best one is.

    Args:
        times: of the layers.
        seconds: what the transfer of so many bytes takes.
        policy: its order and credit are those of the curve.
        sizes: bytes of a partition.
        measured: {bytes of a partition: seconds} of this policy on this link, points; None: no points.
        measured_ddp: seconds of FIFO with a barrier, a point at the largest size; None: no point.
        title: what the figure is about.
        label: which link and model; if it says "emulated link", a box in the figure does too.

    Raises:
        ValueError: no size.
    """
    from dataclasses import replace

    from dtlearn.communication_scheduling.policy import DDP_LIKE
    from dtlearn.communication_scheduling.simulate import lower_bound, simulate_step

    if not sizes:
        raise ValueError("sizes of partitions are needed, such as [2**16, 2**20]; got none")
    own = policy.partition_bytes
    swept = sorted({*sizes, *([own] if own else [])})
    curve = {n: simulate_step(times, replace(policy, partition_bytes=n), seconds).makespan for n in swept}
    name = policy.order + (", no limit in flight" if policy.credit_bytes is None else "")
    points = {name: dict(measured or {})}
    if measured_ddp is not None:
        points[LIKE_DDP] = {swept[-1]: measured_ddp}
    return makespan_curves(
        {LIKE_DDP: dict.fromkeys(swept, simulate_step(times, DDP_LIKE, seconds).makespan), name: curve},
        points,
        latency_knee(seconds),
        lower_bound(times, seconds),
        (name, own) if own else None,
        title,
        label,
    )


def latency_knee(seconds: Callable[[float], float]) -> float:
    """The bytes whose transfer takes as long as the latency of their call: below them most of a call is latency.

    Args:
        seconds: what so many bytes take, latency + bytes / bandwidth: a straight line.
    """
    return seconds(0) / (seconds(1e9) - seconds(0)) * 1e9
