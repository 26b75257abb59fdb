"""`dtlearn reset`: an exercise's file as it was at first. What it held is kept."""

from __future__ import annotations

import argparse
from typing import Any

from ...course import Course, Exercise, load_course
from ...grading.learner import attempts
from ...grading.learner.exercise_files import places
from ...grading.learner.grade_file import stub_text, write_answer
from ...runtime.errors import DtlearnError
from ..arguments import add_example_parser


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands,
        "reset",
        "Begin an exercise anew: its file becomes the stub again. What it held is kept, and it is said where.",
        "dtlearn reset ch01.name",
        run,
    )
    parser.add_argument("id", help="of the exercise")


def run(options: argparse.Namespace) -> int:
    """Reset the exercise that the options name."""
    course = load_course()
    print(reset(course, course.exercise(options.id)))
    return 0


def reset(course: Course, exercise: Exercise) -> str:
    """Put the stub in the place of the answer.

    Returns:
        A sentence on what was done.

    Raises:
        ValueError: the course has no solutions to make a stub from.
        DtlearnError: the answer cannot be kept, or the file not be written; then it is as it was.
    """
    stub, place = stub_text(course, exercise), places(course, exercise)
    name = place.answer.relative_to(course.root).as_posix()
    if stub is None:
        raise ValueError(f"{exercise.id} has no solution here to make its stub from")
    try:
        # Whatever bytes it holds are kept as they are.
        held = place.current.read_bytes().decode("utf-8", "surrogateescape") if place.current.exists() else None
        if held == stub and place.answer.exists():
            return f"{name} is the stub already"
        kept = None
        if held not in (None, stub):
            kept = attempts.keep_copy(attempts.attempts_folder(course.root, exercise.id), held)
        write_answer(place.answer, stub)
    except OSError as error:
        raise DtlearnError(
            f"{name} was not reset: {error.filename or 'a file'} cannot be written ({error.strerror})"
        ) from error
    return f"{name} is the stub again" + (f"; what it held is in {kept.relative_to(course.root)}" if kept else "")
