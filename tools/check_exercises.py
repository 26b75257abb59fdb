"""Is every exercise whole? Its solution, stub, check and wrong answers, and no file that belongs to none.

A wrong answer is a file `tests/course/wrong/<slug>/<exercise>/<what_is_wrong>.py`. Its first lines are comments that
say how it must be judged:

    # expect: DTL-VALUE-FACTOR
    # says: summed and did not average
    # rank: 1

`expect` is the verdict's code; `says` is a part of its headline, and may stand several times; `rank` is the rank that
must be named, and may be left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dtlearn.course import Course, Exercise
from dtlearn.grading.learner.exercise_files import ExerciseFiles, checks_folder, files_of, find_check
from dtlearn.grading.learner.stubs import stub_of

MIN_WRONG = 3
_LINE = re.compile(r"# (expect|says|rank): (\S.*?)\s*")
_GENERATED = ("__pycache__", ".ipynb_checkpoints")


@dataclass(frozen=True)
class Expectation:
    """How a wrong answer must be judged: see the head of this file."""

    code: str
    says: tuple[str, ...] = field(default=())
    rank: int | None = None


def expectation(text: str, file: str) -> Expectation:
    """What the head of a wrong answer asks for. Raises ValueError if it does not say."""
    found: dict[str, list[str]] = {"expect": [], "says": [], "rank": []}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if not match:
            break
        found[match[1]].append(match[2])
    if len(found["expect"]) != 1 or not found["expect"][0].startswith("DTL-"):
        raise ValueError(f"{file}:1: must begin with a line such as '# expect: DTL-VALUE-FACTOR'")
    if len(found["rank"]) > 1 or not all(r.isdigit() for r in found["rank"]):
        raise ValueError(f"{file}:1: '# rank:' takes one number")
    return Expectation(found["expect"][0], tuple(found["says"]), int(found["rank"][0]) if found["rank"] else None)


def wrong_answers(files: ExerciseFiles) -> list[Path]:
    """The wrong answers of an exercise, by name."""
    return sorted(files.wrong.glob("*.py"))


def problems(course: Course) -> list[str]:
    """What is missing, misplaced or unreadable, as one line each; [] if every exercise is whole."""
    found: list[str] = []
    expected: dict[str, set[Path]] = {"solutions": set(), "exercises": set(), "tests/course/wrong": set()}
    checks: set[str] = set()
    for chapter in course.chapters:
        for exercise in chapter.exercises:
            files = files_of(course, exercise)
            expected["solutions"].add(files.solution)
            expected["exercises"].add(files.stub)
            expected["tests/course/wrong"].update(wrong_answers(files))
            checks.add(f"{files.slug}/{exercise.name}.py")
            found += _missing(course, exercise, files)
    for folder, wanted in expected.items():
        present = {p for p in (course.root / folder).rglob("*") if p.is_file() and not set(p.parts) & set(_GENERATED)}
        orphans = sorted(p.relative_to(course.root).as_posix() for p in present - wanted)
        found += [f"{path}: belongs to no exercise of course.toml" for path in orphans]
    home = checks_folder(course)
    there = {p.relative_to(home).as_posix() for p in home.glob("*/*.py") if not p.name.startswith("_")}
    found += [f"dtlearn/checks/{name}: belongs to no exercise" for name in sorted(there - checks)]
    return found


def _missing(course: Course, exercise: Exercise, files: ExerciseFiles) -> list[str]:
    found = []

    def name(path: Path) -> str:
        return path.relative_to(course.root).as_posix()

    if not files.solution.is_file():
        found.append(f"{exercise.id}: {name(files.solution)} is missing")
    else:
        try:
            stub_of(files.solution.read_text("utf-8"), exercise.id, name(files.solution))
        except ValueError as error:
            found.append(str(error))
    if not files.stub.is_file():
        found.append(f"{exercise.id}: {name(files.stub)} is missing; run make exercises")
    try:
        find_check(course, exercise)
    except ValueError as error:
        found.append(str(error))
    wrong = wrong_answers(files)
    if len(wrong) < MIN_WRONG:
        found.append(f"{exercise.id}: {len(wrong)} wrong answers in {name(files.wrong)}; at least {MIN_WRONG}")
    for path in wrong:
        try:
            expectation(path.read_text("utf-8"), name(path))
        except ValueError as error:
            found.append(str(error))
    return found
