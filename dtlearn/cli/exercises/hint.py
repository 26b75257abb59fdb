"""`dtlearn hint`: the hints of an exercise, one more each time."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ...course import load_course
from ...grading.learner import attempts
from ..arguments import add_example_parser


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands, "hint", "Show the next hint of an exercise, after those shown before.", "dtlearn hint ch01.name",
        run,
    )
    parser.add_argument("id", help="of the exercise")


def run(options: argparse.Namespace) -> int:
    """Print one hint more than last time."""
    course = load_course()
    exercise = course.exercise(options.id)
    folder = attempts.attempts_folder(course.root, exercise.id)
    before, total = attempts.hints_taken(folder), len(exercise.hints)
    taken = min(before + 1, total)
    for number, hint in enumerate(exercise.hints[:taken], start=1):
        print(f"{number} of {total}: {hint}")
    if before >= total:
        print(f"These are all. After an attempt, `dtlearn solution {exercise.id}` shows a worked answer.")
    elif note := attempts.note_hints(folder, taken):
        print(note, file=sys.stderr)
    return 0
