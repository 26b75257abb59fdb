"""How far a learner has come, from the kept attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...course import Course, Exercise
from . import attempts
from .exercise_files import files_of
from .grade_file import read_answer, untouched

if TYPE_CHECKING:
    from ...viz.table import Table

ExerciseStanding = Literal["passed", "not passed yet", "started", "not started"]


@dataclass(frozen=True)
class ExerciseRow:
    """One exercise."""

    exercise: Exercise
    standing: ExerciseStanding  # "started" means that its file is no longer the stub, and was not graded yet
    score: float = 0.0  # the best
    tier: str = ""  # of the best; "" unless passed
    attempts: int = 0  # honest ones, graded
    at_first: bool = False  # passed at the first of them
    hints: int = 0  # how many were shown


def rows(course: Course, read: bool = True) -> list[ExerciseRow]:
    """Every exercise, in order. `read=False`: as for somebody who begins; no file is read."""
    exercises = [exercise for chapter in course.chapters for exercise in chapter.exercises]
    return [_row(course, exercise) if read else ExerciseRow(exercise, "not started") for exercise in exercises]


def _row(course: Course, exercise: Exercise) -> ExerciseRow:
    folder = attempts.attempts_folder(course.root, exercise.id)
    honest = [a for a in attempts.listing(folder) if a.honest]
    best, hints = attempts.best(honest), attempts.hints_taken(folder)
    if best is None:
        return ExerciseRow(exercise, "started" if _was_edited(course, exercise) else "not started", hints=hints)
    standing: ExerciseStanding = "passed" if best.passed else "not passed yet"
    return ExerciseRow(exercise, standing, best.score, best.tier, len(honest), attempts.passed_at_first(honest), hints)


def _was_edited(course: Course, exercise: Exercise) -> bool:
    try:
        return not untouched(course, exercise, read_answer(files_of(course, exercise).current))
    except ValueError:  # no file, or one that cannot be read
        return False


def next_of(rows: Sequence[ExerciseRow]) -> ExerciseRow | None:
    """The first one that is not passed; None if all are."""
    return next((row for row in rows if row.standing != "passed"), None)


def sums(rows: Sequence[ExerciseRow], what: str = " exercises") -> str:
    """How many passed, and the points."""
    passed = sum(row.standing == "passed" for row in rows)
    score, points = sum(row.score for row in rows), sum(row.exercise.points for row in rows)
    return f"{passed} of {len(rows)}{what} passed, {score:g} of {points:g} points"


def board(rows: list[ExerciseRow]) -> Table:
    """The rows as a table, with a line that sums up."""
    from ...viz.table import Table  # here, as matplotlib comes with it

    caption = sums(rows)
    columns = ("exercise", "what", "state", "points", "tier", "attempts", "hints")
    cells = tuple(
        (
            row.exercise.id,
            row.exercise.title,
            row.standing,
            f"{row.score:g} of {row.exercise.points:g}",
            row.tier,
            f"{row.attempts}" + (" (at once)" if row.at_first else ""),
            f"{row.hints} of {len(row.exercise.hints)}",
        )
        for row in rows
    )
    return Table(caption, columns, cells, (False,) * len(columns))
