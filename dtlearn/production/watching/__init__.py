"""Watching runs: curves, trackers, a search, and traces of a step.

In this order: `metrics_file`, the numbers of a run as the training script writes them, and `tensorboard_scalars`, the
same as curves; `wandb_log`, for Weights & Biases without a network; `tune_search`, Ray Tune with the training script as
its trainable; `step_traces`, PyTorch's profiler beside the course's record. `extras` says how to get the packages that
the two in the middle need: `make watching`.
"""

from .extras import ExtraMissing
from .metrics_file import MetricsLine, read_metrics
from .step_traces import Sight, StepTraces, operator_seconds, trace_step
from .tensorboard_scalars import read_tensorboard
from .tune_search import SearchTrial, search_learning_rate
from .wandb_log import log_offline, read_offline

__all__ = [
    "ExtraMissing",
    "MetricsLine",
    "SearchTrial",
    "Sight",
    "StepTraces",
    "log_offline",
    "operator_seconds",
    "read_metrics",
    "read_offline",
    "read_tensorboard",
    "search_learning_rate",
    "trace_step",
]
