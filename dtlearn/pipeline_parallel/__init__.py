"""Layer 3: pipeline parallelism. A model is cut into stages, a batch into micro-batches, and every rank has a stage.

For any process: `actions`, `schedule` and `text`, a schedule as data; `partition/`, which links make which stage;
`split_model`, the stages as modules.
"""

from .actions import Action, Op
from .partition.boundaries import imbalance, stage_costs
from .partition.costs import (
    LinkSeconds,
    gpt_flops,
    gpt_links,
    measure_seconds,
    parameter_counts,
    saved_bytes,
    stage_memory,
)
from .partition.naive import by_count, greedy
from .partition.optimum import by_cost, by_stage_cost
from .placement.differentiable import receive, send
from .placement.naive import NaiveModelParallel
from .schedule import Schedule
from .split_model import split_gpt, split_sequential, tied_embedding
from .text import format_schedule, parse_schedule

__all__ = [
    "Action",
    "LinkSeconds",
    "NaiveModelParallel",
    "Op",
    "Schedule",
    "by_cost",
    "by_count",
    "by_stage_cost",
    "format_schedule",
    "gpt_flops",
    "gpt_links",
    "greedy",
    "imbalance",
    "measure_seconds",
    "parameter_counts",
    "parse_schedule",
    "receive",
    "saved_bytes",
    "send",
    "split_gpt",
    "split_sequential",
    "stage_costs",
    "stage_memory",
    "tied_embedding",
]
