"""The learner's own copies, in `work/`, which git does not track: working through the course changes no tracked file.

    work/ch01_ranks.ipynb        the notebook that `dtlearn lab` opens, without the outputs of the course's own
    work/ch01_ranks/barrier.py   the learner's answer
    work/kept/                   notebooks that were replaced, as they were

A copy remembers from which version of the chapter it was made. One that was not changed follows the course; one that
was changed stays as it is until its owner asks for the new version, and is kept then.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ...course import Chapter, Course, Exercise
from ...runtime.errors import DtlearnError
from ...runtime.machine.whole_file import write_new, write_whole
from .exercise_files import files_of
from .grade_file import read_answer, untouched
from .stubs import to_cell

FOLDER = "work"
_MADE_FROM = "dtlearn_copy_of"  # metadata of a copy: the version of the chapter
CopyState = Literal["made", "current", "renewed", "older", "broken"]
SENTENCES: dict[CopyState, str] = {
    "made": "Your copy is {shown}; the course's own notebook stays as it is.",
    "current": "{shown} is your copy of the course's latest version.",
    "renewed": "{shown} is the course's new version now; you had changed nothing in it.",
    "older": "The course has a newer version of this chapter than {shown}. `dtlearn update {chapter}` brings it, with "
    "your answers in it, and keeps the notebook that you have in {kept}.",
    "broken": "{shown} is no notebook any more: its JSON is damaged. It is left as it is; `dtlearn lab --fresh "
    "{chapter}` keeps it in {kept} and makes a new one.",
}


def own_copy(course: Course, chapter: Chapter) -> CopyState:
    """See that the learner has a notebook of a chapter, and files for its exercises; what is missing is made.

    Returns what was found, or done; see `SENTENCES`. Raises DtlearnError if it cannot be made: why, and what to do.
    """
    path = own_notebook(course, chapter)
    try:
        make_answers(course, chapter.exercises)
        _take_over_predictions(course)
        new = _read(course.root / chapter.notebook)
        if not path.exists():
            _write(path, new)
            return "made"
        try:
            old = _read(path)
        except ValueError:
            return "broken"
        made_from = old["metadata"].get(_MADE_FROM)
        if made_from == _version(new):
            return "current"
        if made_from == _version(old):  # nothing was changed since it was made
            _write(path, new)
            return "renewed"
    except OSError as error:
        raise _cannot_write(course, error) from error
    return "older"


def sentence(state: CopyState, course: Course, chapter: Chapter) -> str:
    """What the learner should know of their copy."""
    shown = own_notebook(course, chapter).relative_to(course.root).as_posix()
    return SENTENCES[state].format(shown=shown, chapter=chapter.slug[:4], kept=f"{FOLDER}/kept/")


def update(course: Course, chapter: Chapter) -> str:
    """Bring the learner's notebook to the course's version, with their answers in it. Returns and raises as `renew`."""
    state = own_copy(course, chapter)
    return renew(course, chapter, with_answers=True) if state == "older" else sentence(state, course, chapter)


def renew(course: Course, chapter: Chapter, with_answers: bool) -> str:
    """Replace the learner's notebook by the course's; the old one is kept. Returns a sentence on what was done.

    `with_answers`: put what the learner's files hold into the exercise cells; else these are stubs. Raises DtlearnError
    if it could not be done; then everything is as it was.
    """
    path = own_notebook(course, chapter)
    try:
        make_answers(course, chapter.exercises)
        new, kept = _read(course.root / chapter.notebook), ""
        version = _version(new)
        if with_answers:
            _put_in_answers(course, chapter, new)
        if path.exists():
            kept = f"; the one before is {_keep(path).relative_to(course.root).as_posix()}"
        _write(path, new, version)
    except OSError as error:
        raise _cannot_write(course, error) from error
    return f"{path.relative_to(course.root).as_posix()} is the course's version now{kept}."


def own_notebook(course: Course, chapter: Chapter) -> Path:
    return course.root / FOLDER / chapter.notebook.name


def make_answers(course: Course, exercises: Iterable[Exercise]) -> None:
    """A file for each answer, from the stub; one in exercises/ that was worked on is taken over. Raises OSError."""
    for exercise in exercises:
        files = files_of(course, exercise)
        if files.stub.is_file() and not files.answer.exists():
            files.answer.parent.mkdir(parents=True, exist_ok=True)
            if write_new(files.answer, files.stub.read_bytes()):
                files.answer.chmod(0o644)


def _take_over_predictions(course: Course) -> None:
    """Take over predictions that were committed in the course's own notebooks, before there were copies."""
    committed, own = (course.root / folder / ".dtlearn" / "predictions.json" for folder in ("notebooks", FOLDER))
    if committed.is_file() and not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        write_whole(own, committed.read_bytes())


def _put_in_answers(course: Course, chapter: Chapter, notebook: dict[str, Any]) -> None:
    by_first_line = {f"%%exercise {exercise.id}": exercise for exercise in chapter.exercises}
    for cell in notebook["cells"]:
        exercise = by_first_line.get("".join(cell["source"]).partition("\n")[0].strip())
        if exercise is None:
            continue
        try:
            text = read_answer(files_of(course, exercise).answer)
        except ValueError:  # none, or no text: the file stays, the cell is the stub
            continue
        if not untouched(course, exercise, text):
            cell["source"] = to_cell(text, exercise.id)


def _read(path: Path) -> dict[str, Any]:
    """A notebook. Raises ValueError if the file is none, OSError if it cannot be read."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        _version(notebook)
        notebook["metadata"].get(_MADE_FROM)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("its JSON is not that of a notebook") from None
    return dict(notebook)


def _version(notebook: dict[str, Any]) -> str:
    """What a learner may change: the kinds and texts of all cells, in order; outputs do not count."""
    cells = [[cell["cell_type"], "".join(cell["source"])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]


def _write(path: Path, notebook: dict[str, Any], version: str | None = None) -> None:
    """Write a copy: without outputs, so that nothing is seen before it is run."""
    not_run: dict[str, Any] = {"outputs": [], "execution_count": None}
    cells = [{**cell, **not_run} if cell["cell_type"] == "code" else cell for cell in notebook["cells"]]
    metadata = {**notebook["metadata"], _MADE_FROM: version or _version(notebook)}
    text = json.dumps({**notebook, "cells": cells, "metadata": metadata}, indent=1, ensure_ascii=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text + "\n", 0o644)


def _keep(path: Path) -> Path:
    """Move a notebook to `work/kept/`, under a name that nothing has."""
    folder = path.parent / "kept"
    folder.mkdir(exist_ok=True)
    number = 1
    while not write_new(kept := folder / f"{path.stem}-{number:03d}.ipynb", path.read_bytes()):
        number += 1
    return kept


def _cannot_write(course: Course, error: OSError) -> DtlearnError:
    name, why = error.filename or "a file", error.strerror or error
    return DtlearnError(
        f"your copies belong in {course.root / FOLDER}, and {name} cannot be read or written there ({why}). Make room "
        "or take over its rights, or clone the course into a folder of your own"
    )
