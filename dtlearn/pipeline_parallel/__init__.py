"""Layer 3: pipeline parallelism. A model is cut into stages, a batch into micro-batches, and every rank has a stage.

For any process: `actions`, `schedule` and `text`, a schedule as data.
"""

from .actions import Action, Op
from .schedule import Schedule
from .text import format_schedule, parse_schedule

__all__ = ["Action", "Op", "Schedule", "format_schedule", "parse_schedule"]
