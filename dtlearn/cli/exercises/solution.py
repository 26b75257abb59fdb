"""`dtlearn solution`: a worked answer, after an attempt of one's own."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any

from ...course import load_course
from ...grading.learner import attempts
from ...grading.learner.exercise_files import places
from ...grading.learner.grade_file import read_answer
from ..arguments import add_example_parser

_MARKER = re.compile(r" *# (BEGIN SOLUTION: .*|END SOLUTION *)\n?")


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands,
        "solution",
        "Show a worked answer to an exercise that was attempted.",
        "dtlearn solution ch01.name --diff     what differs from your file",
        run,
    )
    parser.add_argument("id", help="of the exercise")
    parser.add_argument("--diff", action="store_true", help="only what differs from your file")


def run(options: argparse.Namespace) -> int:
    """Print the solution, if there was an honest attempt; 1 if not."""
    course = load_course()
    exercise = course.exercise(options.id)
    place = places(course, exercise)
    if not any(a.honest for a in attempts.listing(attempts.attempts_folder(course.root, exercise.id))):
        print(
            f"{exercise.id} was not attempted yet. Write an answer, wrong or not, and grade it: "
            f"`dtlearn grade {exercise.id}`. `dtlearn hint {exercise.id}` gives a nudge."
        )
        return 1
    name = place.solution.relative_to(course.root).as_posix()
    lines = [line for line in read_answer(place.solution).splitlines(keepends=True) if not _MARKER.fullmatch(line)]
    if not options.diff:
        print(f"# {name}\n{''.join(lines)}", end="")
        return 0
    yours = read_answer(place.current).splitlines(keepends=True)
    shown = difflib.unified_diff(yours, lines, place.current.relative_to(course.root).as_posix(), name)
    print("".join(line if line.endswith("\n") else f"{line}\n" for line in shown) or "no difference\n", end="")
    return 0
