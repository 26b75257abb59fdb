"""`dtlearn progress`: the board of all exercises."""

from __future__ import annotations

import argparse
from typing import Any

from ...course import load_course
from ...grading.learner.progress import board, rows
from ..arguments import add_example_parser


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands, "progress", "Show every exercise: its state, best score, attempts, hints.", "dtlearn progress",
        run,
    )


def run(options: argparse.Namespace) -> int:
    """Print the board."""
    print(board(rows(load_course())))
    return 0
