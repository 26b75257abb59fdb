"""`dtlearn progress`: how far a learner has come, chapter by chapter, as wide as the terminal."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ...course import Course, load_course
from ...grading.learner.progress import ExerciseRow, next_of, rows, sums
from ...grading.report.console import wants_colour
from ...runtime.words import columns, counted
from ..arguments import add_example_parser
from .grade import choose

_COLOURS = {"passed": "32", "not passed yet": "33", "started": "36"}


def add_command(commands: Any) -> None:
    summary = "Show what is passed and what is next: each exercise with its state, best score, attempts and hints."
    parser = add_example_parser(commands, "progress", summary, "dtlearn progress ch03", run)
    parser.add_argument("what", nargs="?", help="ch01.name or ch01 (default: every exercise)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Print the board of what the options name."""
    course = load_course()
    chosen = {exercise.id for exercise in choose(course, options.what)}
    shown = [row for row in rows(course) if row.exercise.id in chosen]
    if options.json:
        print(json.dumps(as_data(shown), indent=1))
    else:
        colour = wants_colour(sys.stdout, os.environ)
        print("\n".join(board_lines(course, shown, shutil.get_terminal_size((80, 24)).columns, colour)))
    return 0


def as_data(shown: Sequence[ExerciseRow]) -> dict[str, Any]:
    """For other programs."""
    left = next_of(shown)
    fields = ("standing", "score", "tier", "attempts", "at_first", "hints")
    exercises = [
        {"id": row.exercise.id, "points": row.exercise.points, **{name: getattr(row, name) for name in fields}}
        for row in shown
    ]
    return {"next": left.exercise.id if left else None, "exercises": exercises}


def board_lines(course: Course, shown: Sequence[ExerciseRow], width: int, colour: bool = False) -> list[str]:
    """What is next, then each chapter with its sums. Columns that do not fit are left out, from the right."""
    left = next_of(shown)
    lines = [sums(shown)]
    if left is not None:
        lines.append(f"next: {left.exercise.id}, in `dtlearn lab {left.exercise.id.partition('.')[0]}`")
    cells = [column for column in zip(*map(_cells, shown), strict=True) if any(column)]
    while len(cells) > 2 and sum(max(map(len, column)) + 2 for column in cells) - 2 > width:
        cells.pop()
    table = columns([*zip(*cells, strict=True)], indent="")
    for prefix, part in groupby(zip(shown, table, strict=True), key=lambda pair: pair[0].exercise.id.partition(".")[0]):
        of_chapter = list(part)
        heading = f"{prefix}  {course.chapter(prefix).title}: {sums([row for row, _ in of_chapter], '')}"
        lines += ["", f"\x1b[1m{heading}\x1b[0m" if colour else heading]
        for row, line in of_chapter:
            painted = f"  \x1b[{_COLOURS.get(row.standing, '0')}m{row.standing}\x1b[0m"
            lines.append(line.replace(f"  {row.standing}", painted, 1) if colour else line)
    return lines


def _cells(row: ExerciseRow) -> tuple[str, ...]:
    tries = f"{counted(row.attempts, 'attempt')}{' (at once)' * row.at_first}" if row.attempts else ""
    points = f"{row.score:g} of {row.exercise.points:g}"
    hints = counted(row.hints, "hint") if row.hints else ""
    return row.exercise.id, row.standing, points, row.tier, tries, hints, row.exercise.title
