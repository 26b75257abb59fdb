"""Layer 4: communication scheduling. Which gradient leaves first, and which layer waits for which.

For any process: `policy`, the order of sends as data; `simulate`, which plays it over the times of layers; and
`recurrence`, a formula that goes around, beside the right one. On the ranks: `page_priority` on one page; then
`scheduler`, who sends what next and how ranks agree, `layers` and `layerwise`, what becomes ready and is waited for
together, and `wrapper`, which puts them together; `push_pull`, the same with servers. `emulated` runs it with layers
that take given times, and `prefetch` shows what today's libraries do of it.
"""

from .emulated import PacedLayer, beside_simulator, paced_model, run_emulated, transfer_seconds
from .layers import GradientOnItsWay
from .policy import DDP_LIKE, GradientPartition, SchedulingPolicy, partitions_of
from .prefetch import prefetch_lanes, recorded_lanes, run_fully_shard
from .push_pull import PartitionServer, PriorityPushPull
from .recurrence import starts, starts_as_written, too_early
from .scheduler import EachDecides, PlannedOrder, RankZeroDecides, StepSender
from .simulate import LaneSpan, LayerTimes, ScheduledStep, SentPartition, lower_bound, simulate_step
from .wrapper import PriorityDataParallel

__all__ = [
    "DDP_LIKE",
    "EachDecides",
    "GradientOnItsWay",
    "GradientPartition",
    "LaneSpan",
    "LayerTimes",
    "PacedLayer",
    "PartitionServer",
    "PlannedOrder",
    "PriorityDataParallel",
    "PriorityPushPull",
    "RankZeroDecides",
    "ScheduledStep",
    "SchedulingPolicy",
    "SentPartition",
    "StepSender",
    "beside_simulator",
    "lower_bound",
    "paced_model",
    "partitions_of",
    "prefetch_lanes",
    "recorded_lanes",
    "run_emulated",
    "run_fully_shard",
    "simulate_step",
    "starts",
    "starts_as_written",
    "too_early",
    "transfer_seconds",
]
