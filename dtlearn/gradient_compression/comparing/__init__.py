"""Methods beside each other: what each does to the loss, to the bytes, and to the seconds of a step.

Read `tasks.py` (what is trained), `methods.py` (how each averages, by name), `run.py` (on ranks, and in the record).
"""

from .methods import METHODS, Method, StepParts, averaging, hooked
from .run import MethodRun, compare
from .tasks import TASKS, SmallTask

__all__ = ["METHODS", "TASKS", "Method", "MethodRun", "SmallTask", "StepParts", "averaging", "compare", "hooked"]
