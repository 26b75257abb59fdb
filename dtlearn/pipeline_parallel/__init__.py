"""Layer 4: pipeline parallelism. A model is cut into stages, a batch into micro-batches, and every rank has a stage.

`page_pipeline` is the idea on a page: a rank plays its actions of a schedule.

For any process: `actions`, `schedule` and `text`, a schedule as data; `schedules/`, generators that make one;
`checking/`, what is wrong with it, and when everything in it happens; `partition/`, which links make which stage;
`split_model`, the stages as modules. On the ranks: `placement/`, one stage after the other, naively; `runner/`, which
executes any schedule; `asynchronous/`, a pipeline that is never flushed, PipeDream's; `emulated`, stages that sleep.
"""

from .actions import Action, Op
from .asynchronous.delayed import pipedream_delays, train_delayed
from .asynchronous.pipedream import AsynchronousRun, train_asynchronously
from .asynchronous.stashing import StashingStage
from .checking.deadlock import Deadlock, Post, find_deadlock
from .checking.simulate import Live, ScheduleTimeline, StageTimes, TimedAction, simulate
from .checking.text_grid import format_timeline
from .checking.theory import FORMULAS, Bubble, ScheduleFormula, bubble, peak_live
from .checking.validate import ScheduleError, ScheduleFault, check, validate
from .emulated import EmulatedStage, emulated_stages, run_emulated
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
from .partition.stage_times import stage_times
from .placement.differentiable import receive, send
from .placement.naive import NaiveModelParallel
from .runner.communication import Compute, MessageBatch, StageMessage, forward_only, with_communication
from .runner.losses import StepResult
from .runner.recomputation import RecomputingStage
from .runner.runner import PipelineRunner
from .runner.split_backward import SplitLinear, add_gradient, defer_linear_weights, deferred_work, weight_work
from .runner.stage import PipelineStage
from .schedule import Schedule
from .schedules.controllable_memory import repeat_block, v_half, v_min
from .schedules.from_torch import TORCH_SCHEDULES, torch_schedule
from .schedules.gpipe import gpipe
from .schedules.interleaved import interleaved
from .schedules.make import SCHEDULES, Kind, make_schedule
from .schedules.naive import naive
from .schedules.one_f_one_b import one_f_one_b
from .schedules.torch_stage import torch_stage
from .schedules.v_shaped import zbv
from .schedules.zero_bubble import late_weights, zb_h1, zb_h2
from .split_model import split_gpt, split_sequential, tied_embedding
from .text import format_schedule, parse_schedule

__all__ = [
    "FORMULAS",
    "SCHEDULES",
    "TORCH_SCHEDULES",
    "Action",
    "AsynchronousRun",
    "Bubble",
    "Compute",
    "Deadlock",
    "EmulatedStage",
    "Kind",
    "LinkSeconds",
    "Live",
    "MessageBatch",
    "NaiveModelParallel",
    "Op",
    "PipelineRunner",
    "PipelineStage",
    "Post",
    "RecomputingStage",
    "Schedule",
    "ScheduleError",
    "ScheduleFault",
    "ScheduleFormula",
    "ScheduleTimeline",
    "SplitLinear",
    "StageMessage",
    "StageTimes",
    "StashingStage",
    "StepResult",
    "TimedAction",
    "add_gradient",
    "bubble",
    "by_cost",
    "by_count",
    "by_stage_cost",
    "check",
    "defer_linear_weights",
    "deferred_work",
    "emulated_stages",
    "find_deadlock",
    "format_schedule",
    "format_timeline",
    "forward_only",
    "gpipe",
    "gpt_flops",
    "gpt_links",
    "greedy",
    "imbalance",
    "interleaved",
    "late_weights",
    "make_schedule",
    "measure_seconds",
    "naive",
    "one_f_one_b",
    "parameter_counts",
    "parse_schedule",
    "peak_live",
    "pipedream_delays",
    "receive",
    "repeat_block",
    "run_emulated",
    "saved_bytes",
    "send",
    "simulate",
    "split_gpt",
    "split_sequential",
    "stage_costs",
    "stage_memory",
    "stage_times",
    "tied_embedding",
    "torch_schedule",
    "torch_stage",
    "train_asynchronously",
    "train_delayed",
    "v_half",
    "v_min",
    "validate",
    "weight_work",
    "with_communication",
    "zb_h1",
    "zb_h2",
    "zbv",
]
