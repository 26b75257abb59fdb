"""`dtlearn try`, `hint`, `solution`, `reset`: one exercise, but for its grade."""

import argparse
import difflib
import sys
from typing import Any

from ...course import load_course
from ...grading.learner import attempts
from ...grading.learner.exercise_files import files_of
from ...grading.learner.grade_file import read_answer, solution_text, stub_text, write_answer
from ...runtime.errors import DtlearnError
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


def run_solution(options: argparse.Namespace) -> int:
    """Print the solution, if there was an honest attempt; 1 if not."""
    course = load_course()
    exercise = course.exercise(options.id)
    files = files_of(course, exercise)
    if not any(a.honest for a in attempts.listing(attempts.attempts_folder(course.root, exercise.id))):
        print(
            f"{exercise.id} was not attempted yet. Write an answer, wrong or not, and grade it: "
            f"`dtlearn grade {exercise.id}`. `dtlearn hint {exercise.id}` gives a nudge."
        )
        return 1
    name = files.solution.relative_to(course.root).as_posix()
    lines = solution_text(course, exercise).splitlines(keepends=True)
    if not options.diff:
        print(f"# {name}\n{''.join(lines)}", end="")
        return 0
    yours = read_answer(files.current).splitlines(keepends=True)
    shown = difflib.unified_diff(yours, lines, files.current.relative_to(course.root).as_posix(), name)
    print("".join(line if line.endswith("\n") else f"{line}\n" for line in shown) or "no difference\n", end="")
    return 0


def run_reset(options: argparse.Namespace) -> int:
    """Put the stub in the place of the answer, and print what was done.

    Raises:
        ValueError: the course has no solutions to make a stub from.
        DtlearnError: the answer cannot be kept, or the file not be written; then it is as it was.
    """
    course = load_course()
    exercise = course.exercise(options.id)
    stub, files = stub_text(course, exercise), files_of(course, exercise)
    name = files.answer.relative_to(course.root).as_posix()
    if stub is None:
        raise ValueError(f"{exercise.id} has no solution here to make its stub from")
    try:
        # Whatever bytes it holds are kept as they are.
        held = files.current.read_bytes().decode("utf-8", "surrogateescape") if files.current.exists() else None
        if held == stub and files.answer.exists():
            print(f"{name} is the stub already")
            return 0
        kept = None
        if held not in (None, stub):
            kept = attempts.keep_copy(attempts.attempts_folder(course.root, exercise.id), held)
        write_answer(files.answer, stub)
    except OSError as error:
        file = error.filename or "a file"
        raise DtlearnError(f"{name} was not reset: {file} cannot be written ({error.strerror})") from error
    print(f"{name} is the stub again" + (f"; what it held is in {kept.relative_to(course.root)}" if kept else ""))
    return 0
