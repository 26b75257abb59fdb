"""Grades a learner's file: reads it, keeps the text, judges it, keeps the verdict."""

from __future__ import annotations

import contextlib
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...course import Course, Exercise
from ...runtime.machine.whole_file import write_whole
from ..verdict import Result, Verdict
from . import attempts
from .exercise_files import check_file, files_of, find_check
from .stubs import same_text, stub_of

if TYPE_CHECKING:
    from ..judging.grade import OnResult
    from ..judging.own_runs import OwnRuns
    from ..own_run import OwnRun

_MARKER = re.compile(r" *# (BEGIN SOLUTION: .*|END SOLUTION *)\n?")
_NOT_YOURS = "this is the course's own answer, so it is not kept and counts for nothing in your progress"
_ON_THE_CPU = "graded with gloo on the CPU, so that a verdict is the same on every machine; your GPUs are for cells"
MAX_BYTES = 1 << 20  # of an answer; the longest honest one has some thousand


def read_answer(path: Path) -> str:
    """The text of an answer. Raises ValueError: there is no such file, or it cannot be an answer; says why."""
    try:
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the file with the answer")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES:,} bytes; that is no answer to an exercise")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 (byte {error.start}); save it as UTF-8") from None
    if "\0" in text:
        raise ValueError(f"{path} is no text: it holds null bytes")
    return text.replace("\r\n", "\n")


def write_answer(path: Path, text: str) -> None:
    """Replace an answer's file at once. It keeps its mode, and a link stays a link. Raises OSError."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    write_whole(path, text)
    path.chmod(mode)


def stub_text(course: Course, exercise: Exercise) -> str | None:
    """The stub of an exercise; None where the course came without solutions."""
    solution = files_of(course, exercise).solution
    if not solution.is_file():
        return None
    return stub_of(solution.read_text(encoding="utf-8"), exercise.id, solution.name)


def solution_text(course: Course, exercise: Exercise) -> str:
    """The worked answer, without the marks of what the learner writes. Raises ValueError: there is none here."""
    text = read_answer(files_of(course, exercise).solution)
    return "".join(line for line in text.splitlines(keepends=True) if not _MARKER.fullmatch(line))


def is_solution(course: Course, exercise: Exercise, source: str) -> bool:
    """Whether a text is the worked answer, with its marks or without."""
    with contextlib.suppress(ValueError):
        marked = read_answer(files_of(course, exercise).solution)
        return any(same_text(source, text) for text in (marked, solution_text(course, exercise)))
    return False


def untouched(course: Course, exercise: Exercise, source: str) -> bool:
    """Whether a text is the stub, with nothing done yet."""
    stub = stub_text(course, exercise)
    return stub is not None and same_text(source, stub)


def not_attempted(exercise: Exercise) -> Verdict:
    """The verdict on a stub, for which nothing needs to run."""
    result = Result("", 0, "not-attempted", "DTL-STUB", "not attempted yet")
    return Verdict(exercise.id, exercise.title, "not-attempted", 0.0, exercise.points, results=(result,))


def grade_file(
    course: Course,
    exercise: Exercise,
    path: Path | None = None,
    *,
    source: str | None = None,
    seed: int | None = None,
    keep: bool = True,
    progress: OnResult | None = None,
    runs: OwnRuns | None = None,
) -> Verdict:
    """Grade an answer. What could not be kept is said in the verdict's notes.

    Args:
        path: the file; None: the exercise's own.
        source: its text, if it is not to be read from there.
        seed, progress: see `judging.grade.grade`.
        keep: keep the attempt. A stub is never kept, nor is the course's own answer where `path` is given.
        runs: keeps the records, for `own_run`.

    Raises:
        ValueError: the file cannot be read, or the exercise has no check.
    """
    is_own, path = path is None, files_of(course, exercise).current if path is None else path
    text = read_answer(path) if source is None else source
    check_file(course, exercise)
    if untouched(course, exercise, text):
        return not_attempted(exercise)
    # Here, as they load torch: who hears that there is nothing to grade does not wait for it.
    from ...runtime.agent.client import get_agent
    from ..judging.grade import grade
    from ..judging.run_case import Answer

    check = find_check(course, exercise)
    not_theirs = not is_own and is_solution(course, exercise, text)
    folder = attempts.attempts_folder(course.root, exercise.id)
    number, note = attempts.begin(folder, text) if keep and not not_theirs else (0, _NOT_YOURS * not_theirs)
    answer = Answer(text, shown_name(course, path), exercise.name)
    tell = progress or (lambda result, done, total: None)
    seen = runs.take if runs else (lambda result, record: None)
    verdict = replace(grade(exercise, check, answer, seed=seed, progress=tell, seen=seen), attempt=number)
    if get_agent().hello()["num_gpus"]:
        verdict = replace(verdict, notes=(*verdict.notes, _ON_THE_CPU))
    if number:
        note = attempts.finish(folder, verdict)
    return replace(verdict, notes=(*verdict.notes, note)) if note else verdict


def own_run(course: Course, exercise: Exercise, verdict: Verdict, runs: OwnRuns) -> OwnRun | None:
    """The run of a grading that is worth a picture, after a pass beside the solution's; None if nothing was said."""
    from ..judging.run_case import Answer

    solution = files_of(course, exercise).solution
    model = None
    if solution.is_file():
        model = Answer(solution.read_text(encoding="utf-8"), solution.name, exercise.name)
    return runs.chosen(verdict, find_check(course, exercise), model)


def shown_name(course: Course, path: Path) -> str:
    """The name of an answer's file as messages show it: inside the course, without the folders above."""
    path = path.absolute()
    return path.relative_to(course.root).as_posix() if path.is_relative_to(course.root) else path.name
