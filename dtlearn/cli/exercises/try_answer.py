"""`dtlearn try`: what an answer returns on 2 ranks, before it is graded."""

from __future__ import annotations

import argparse
from typing import Any

from ...course import load_course
from ..arguments import add_example_parser


def add_command(commands: Any) -> None:
    summary = "Run an answer on 2 ranks and show what each was given and returned. It is not graded."
    parser = add_example_parser(commands, "try", summary, "dtlearn try ch01.name", run)
    parser.add_argument("id", help="of the exercise")


def run(options: argparse.Namespace) -> int:
    """Print what came of it; 1 if a rank raised, or if there is nothing to try."""
    from ...grading.learner.try_answer import try_answer  # here, as it loads torch

    course = load_course()
    trial = try_answer(course, course.exercise(options.id))
    print(trial.heading, *(f"[{rank}] {line}" for rank, lines in trial.lines.items() for line in lines), sep="\n")
    if trial.error:
        print(f"\n{trial.error}")
    return 0 if trial.lines and not trial.error else 1
