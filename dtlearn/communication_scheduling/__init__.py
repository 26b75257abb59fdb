"""Layer 4: communication scheduling. Which gradient leaves first, and which layer waits for which.

Read `policy`, the order of sends as data, and `simulate`, which plays it over the times of layers; `recurrence`, a
formula that goes around, beside the right one.
"""

from .policy import DDP_LIKE, GradientPartition, SchedulingPolicy, partitions_of
from .recurrence import starts, starts_as_written
from .simulate import LaneSpan, LayerTimes, ScheduledStep, SentPartition, lower_bound, simulate_step

__all__ = [
    "DDP_LIKE",
    "GradientPartition",
    "LaneSpan",
    "LayerTimes",
    "ScheduledStep",
    "SchedulingPolicy",
    "SentPartition",
    "lower_bound",
    "partitions_of",
    "simulate_step",
    "starts",
    "starts_as_written",
]
