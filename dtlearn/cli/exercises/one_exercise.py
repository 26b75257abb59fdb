"""`dtlearn try`, `hint`, `solution`, `reset`: one exercise, but for its grade."""

import argparse
import difflib
import sys
from typing import Any

from ...course import load_course
from ...grading.learner.exercise_files import files_of
from ...grading.learner.grade_file import read_answer
from ...grading.learner.help import begin_anew, hint_lines, worked_answer
from ..arguments import add_example_parser


def add_commands(commands: Any) -> None:
    summary = "Run an answer on 2 ranks and show what each was given and returned. It is not graded."
    try_ = add_example_parser(commands, "try", summary, "dtlearn try ch01.name", run_try)
    summary = "Show the next hint of an exercise, after those shown before."
    hint = add_example_parser(commands, "hint", summary, "dtlearn hint ch01.name", run_hint)
    summary = "Show a worked answer to an exercise that was attempted."
    example = "dtlearn solution ch01.name --diff     what differs from your file"
    solution = add_example_parser(commands, "solution", summary, example, run_solution)
    solution.add_argument("--diff", action="store_true", help="only what differs from your file")
    summary = "Begin an exercise anew: its file becomes the stub again. What it held is kept, and it is said where."
    reset = add_example_parser(commands, "reset", summary, "dtlearn reset ch01.name", run_reset)
    for parser in (try_, hint, solution, reset):
        parser.add_argument("id", help="of the exercise")


def run_try(options: argparse.Namespace) -> int:
    """Print what came of it; 1 if a rank raised, or if there is nothing to try."""
    from ...grading.learner.try_answer import try_answer  # here, as what it uses loads torch

    course = load_course()
    trial = try_answer(course, course.exercise(options.id))
    print(trial.heading, *(f"[{rank}] {line}" for rank, lines in trial.lines.items() for line in lines), sep="\n")
    if trial.error:
        print(f"\n{trial.error}")
    return 0 if trial.lines and not trial.error else 1


def run_hint(options: argparse.Namespace) -> int:
    """Print one hint more than last time."""
    course = load_course()
    lines, note = hint_lines(course, course.exercise(options.id), "dtlearn solution")
    print(*lines, sep="\n")
    if note:
        print(note, file=sys.stderr)
    return 0


def run_solution(options: argparse.Namespace) -> int:
    """Print the solution, if there was an honest attempt; 1 if not."""
    course = load_course()
    exercise = course.exercise(options.id)
    answer = worked_answer(course, exercise)
    if answer is None:
        print(
            f"{exercise.id} was not attempted yet. Write an answer, wrong or not, and grade it: "
            f"`dtlearn grade {exercise.id}`. `dtlearn hint {exercise.id}` gives a nudge."
        )
        return 1
    name, text = answer
    if not options.diff:
        print(f"# {name}\n{text}", end="")
        return 0
    current = files_of(course, exercise).current
    yours, theirs = read_answer(current).splitlines(keepends=True), text.splitlines(keepends=True)
    shown = difflib.unified_diff(yours, theirs, current.relative_to(course.root).as_posix(), name)
    print("".join(line if line.endswith("\n") else f"{line}\n" for line in shown) or "no difference\n", end="")
    return 0


def run_reset(options: argparse.Namespace) -> int:
    """Put the stub in the place of the answer, and print what was done. Raises as `begin_anew`."""
    course = load_course()
    print(begin_anew(course, course.exercise(options.id)))
    return 0
