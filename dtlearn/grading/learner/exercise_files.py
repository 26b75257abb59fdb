"""Where the parts of an exercise lie, and the check that judges it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...course import Course, Exercise

if TYPE_CHECKING:
    from ..check import Check


@dataclass(frozen=True)
class ExerciseFiles:
    """The files of one exercise."""

    slug: str
    answer: Path  # the learner's own, `work/<slug>/<name>.py`
    stub: Path  # what it begins as, `exercises/<slug>/<name>.py`
    solution: Path  # what it is generated from, `solutions/<slug>/<name>.py`
    wrong: Path  # folder of wrong answers, `tests/course/wrong/<slug>/<name>/`

    @property
    def current(self) -> Path:
        """Where the learner's work is to be read: their own file, or the stub's while there is none."""
        return self.answer if self.answer.exists() else self.stub


def files_of(course: Course, exercise: Exercise) -> ExerciseFiles:
    slug = course.chapter(exercise.id.partition(".")[0]).slug
    name = f"{exercise.name}.py"
    answer, stub, solution = (course.root / folder / slug / name for folder in ("work", "exercises", "solutions"))
    return ExerciseFiles(slug, answer, stub, solution, course.root / "tests/course/wrong" / slug / exercise.name)


def checks_folder(course: Course) -> Path:
    """Where the checks of a course lie: `<slug>/<name>.py` in it."""
    return course.root / "dtlearn" / "checks"


def find_checks(course: Course, exercise: Exercise, hidden: Path | None) -> list[tuple[Check, bool]]:
    """The public check and, if that folder has one, the hidden one; each with whether it is hidden."""
    checks = [(find_check(course, exercise), False)]
    if hidden is not None and (hidden / files_of(course, exercise).slug / f"{exercise.name}.py").is_file():
        checks.append((find_check(course, exercise, hidden), True))
    return checks


def check_file(course: Course, exercise: Exercise, folder: Path | None = None) -> Path:
    """Where the check of an exercise is. Raises ValueError without one."""
    path = (folder or checks_folder(course)) / files_of(course, exercise).slug / f"{exercise.name}.py"
    if not path.is_file():
        raise ValueError(f"{exercise.id} has no check: {path} does not exist")
    return path


def find_check(course: Course, exercise: Exercise, folder: Path | None = None) -> Check:
    """The check of an exercise, loaded by its path: the grader knows no check by name. Raises ValueError without one.

    `folder`: of hidden checks, `<folder>/<slug>/<name>.py`; None: those of the course.
    """
    from ..check import Check  # here, as it loads torch: those who only want the files do not wait for it

    slug, path = files_of(course, exercise).slug, check_file(course, exercise, folder)
    # In the chapter's package, of which it may import helpers: a hidden check those of the public ones.
    kind = "" if folder is None else "hidden_"
    spec = importlib.util.spec_from_file_location(f"dtlearn.checks.{slug}.{kind}{exercise.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # so that its source can be read
    spec.loader.exec_module(module)
    check = getattr(module, "CHECK", None)
    if not isinstance(check, Check):
        raise ValueError(f"{module.__file__} defines no CHECK")
    package = f"dtlearn.checks.{slug}"  # not in sys.modules yet, if the check uses nothing of it
    chapter = importlib.import_module(package) if importlib.util.find_spec(package) else None
    reads = (*check.reads, *getattr(chapter, "READS", ()))
    return replace(check, reads=reads, solution=files_of(course, exercise).solution)
