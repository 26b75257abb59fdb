"""The planner beside real runs, and beside torch: what was planned equals what the ledger and the record found.

In this order: `small_run`, a run as `HybridGPT` and as the planner take it; `planned_rank`, the planner's rules for one
of its ranks, to the byte; `compare`, those beside a real step; `times`, seconds on an emulated link; `orders`, what the
wrong order of the axes costs; `torch_collectives`, torch's own calls on a thousand ranks.
"""

from .compare import PlanComparison, compare_with_plan, comparison_table
from .orders import DP_INNER, TP_INNER, MeasuredOrder, measure_orders, orders_table
from .planned_rank import RankFigures, planned_bytes, planned_rank
from .small_run import SmallRun
from .times import TimeComparison, compare_times, plan_with, times_table
from .torch_collectives import CallCount, collectives_table, divide_by_torch, planned_collectives, torch_collectives

__all__ = [
    "DP_INNER",
    "TP_INNER",
    "CallCount",
    "MeasuredOrder",
    "PlanComparison",
    "RankFigures",
    "SmallRun",
    "TimeComparison",
    "collectives_table",
    "compare_times",
    "compare_with_plan",
    "comparison_table",
    "divide_by_torch",
    "measure_orders",
    "orders_table",
    "plan_with",
    "planned_bytes",
    "planned_collectives",
    "planned_rank",
    "times_table",
    "torch_collectives",
]
