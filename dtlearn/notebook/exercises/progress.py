"""The board of all exercises, in a notebook."""

from ...course import load_course
from ...grading.learner.progress import board, rows
from ...viz.table import Table
from ..frontend import is_live


def progress() -> Table:
    """Every exercise of the course: its state, best score, attempts, hints. A headless run shows the empty board."""
    return board(rows(load_course(), read=is_live()))
