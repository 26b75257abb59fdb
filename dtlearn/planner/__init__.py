"""Plans a training run on a cluster that is not here: memory, time and layout, by arithmetic alone.

Read in this order: `checking`, what numbers have to be; `hardware` and `models`, the data; `run`, all that a step
depends on; `flops`; `memory`; `network` and `layer_time`, which `step` adds up; `goodput`; `search` and `reasons`;
`report`. `score` holds all of it against published numbers.
"""

from .goodput import Goodput, goodput
from .hardware import ACCELERATORS, Accelerator, Cluster, find_accelerator, parse_cluster
from .memory import PlannedMemory, planned_memory
from .models import MORE_MODELS, find_model, model_of_count
from .network import bytes_by_axis
from .reasons import what_would_change_it, why_it_loses
from .report import check_report, plan_table, plan_values
from .run import Axes, Software, TrainingRun, check_run, run_faults
from .score import read_entries, score, score_table, score_values
from .search import Constraints, LayoutPlan, planned_layouts, search_layouts
from .step import MeasuredTimes, StepTime, planned_step

__all__ = [
    "ACCELERATORS",
    "MORE_MODELS",
    "Accelerator",
    "Axes",
    "Cluster",
    "Constraints",
    "Goodput",
    "LayoutPlan",
    "MeasuredTimes",
    "PlannedMemory",
    "Software",
    "StepTime",
    "TrainingRun",
    "bytes_by_axis",
    "check_report",
    "check_run",
    "find_accelerator",
    "find_model",
    "goodput",
    "model_of_count",
    "parse_cluster",
    "plan_table",
    "plan_values",
    "planned_layouts",
    "planned_memory",
    "planned_step",
    "read_entries",
    "run_faults",
    "score",
    "score_table",
    "score_values",
    "search_layouts",
    "what_would_change_it",
    "why_it_loses",
]
