"""Finds the answers in what a class handed in: a folder with one folder or zip file per student.

Nothing is unpacked. Only files whose names are those of exercises are read, straight from where they lie, each up to
a size limit; links and paths that lead out are refused. So a hostile archive has nothing to write to.
"""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ...course import Course, Exercise

MAX_FILE = 1 << 20  # bytes of one answer
MAX_MEMBERS = 20_000  # entries of one archive or folder


@dataclass(frozen=True)
class Submission:
    """What one student handed in.

    Attributes:
        student: the name of the folder or zip file.
        answers: `{exercise id: text}`.
        files: `{exercise id: the name of the file inside the submission}`.
        problems: files that were refused, and why.
    """

    student: str
    answers: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def find_submissions(folder: Path, course: Course, exercises: Iterable[Exercise]) -> list[Submission]:
    """All submissions in a folder, by name.

    Raises:
        ValueError: the folder cannot be read or holds no submission.
    """
    exercises = list(exercises)
    try:
        entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {error.strerror}") from error
    found = [
        read_submission(p, course, exercises)
        for p in entries
        if not p.is_symlink() and (p.is_dir() or p.suffix.lower() == ".zip")
    ]
    if not found:
        raise ValueError(f"{folder} holds no submission: it needs one folder or one .zip file per student")
    names = [s.student for s in found]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ValueError(f"{folder} holds a folder and a .zip file of the same name: {', '.join(twice)}")
    return found


def read_submission(path: Path, course: Course, exercises: Iterable[Exercise]) -> Submission:
    """One student's answers. What cannot be read is a problem of that submission, not an exception."""
    student = path.stem if path.suffix.lower() == ".zip" else path.name
    answers: dict[str, str] = {}
    files: dict[str, str] = {}
    problems: list[str] = []
    wanted = {name: e.id for e in exercises for name in _names(course, e)}
    try:
        members = list(_members(path, problems))
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        return Submission(student, problems=(f"the submission cannot be read: {error}",))
    # A whole course may be handed in: the learner's own files, in work/, come before the stubs.
    for name in sorted(members, key=lambda n: ("work" not in PurePosixPath(n).parts, n.count("/"), n)):
        exercise = _exercise_of(name, wanted)
        if exercise is None:
            continue
        if exercise in answers:
            problems.append(f"{name}: a second answer to {exercise}; {files[exercise]} is graded")
            continue
        text = _read(path, name)
        if isinstance(text, str):
            answers[exercise], files[exercise] = text, name
        else:
            problems.append(f"{name}: {text[0]}")
    return Submission(student, answers, files, tuple(problems))


def safe_name(student: str) -> str:
    """A student's name as a file name: letters, digits, `.`, `-` and `_`; others become `_` and a checksum."""
    import zlib

    plain = re.sub(r"[^A-Za-z0-9._-]", "_", student).strip(".")[:80]
    return plain if plain == student else f"{plain}-{zlib.crc32(student.encode(errors='replace')):08x}"


def _names(course: Course, exercise: Exercise) -> tuple[str, ...]:
    """Endings of a path that name this exercise, the most exact first."""
    slug = course.chapter(exercise.id.partition(".")[0]).slug
    return (f"{slug}/{exercise.name}.py", f"{exercise.id}.py", f"{slug[:4]}_{exercise.name}.py", f"{exercise.name}.py")


def _exercise_of(name: str, wanted: dict[str, str]) -> str | None:
    parts = PurePosixPath(name).parts
    for ending in ("/".join(parts[-2:]), parts[-1]):
        if ending in wanted:
            return wanted[ending]
    return None


def _members(path: Path, problems: list[str]) -> Iterator[str]:
    """Names of the regular files, relative, with `/`."""
    if path.is_dir():
        for number, entry in enumerate(sorted(path.rglob("*.py"))):
            if number > MAX_MEMBERS:
                raise ValueError(f"more than {MAX_MEMBERS:,} files")
            name = entry.relative_to(path).as_posix()
            inside = entry.resolve().is_relative_to(path.resolve())
            if not inside or any(p.is_symlink() for p in (entry, *entry.parents) if p.is_relative_to(path)):
                problems.append(f"{name}: a link; refused")
            elif entry.is_file():
                yield name
        return
    with zipfile.ZipFile(path) as archive:
        if len(archive.infolist()) > MAX_MEMBERS:
            raise ValueError(f"more than {MAX_MEMBERS:,} files")
        for info in archive.infolist():
            if info.is_dir() or not info.filename.endswith(".py"):
                continue
            parts = PurePosixPath(info.filename).parts
            if parts[:1] == ("/",) or ".." in parts or "\\" in info.filename:
                problems.append(f"{info.filename}: leads out of the archive; refused")
            elif stat.S_ISLNK(info.external_attr >> 16):
                problems.append(f"{info.filename}: a link; refused")
            elif "__MACOSX" not in parts:
                yield info.filename


def _read(path: Path, name: str) -> str | tuple[str]:
    """The text of a file; or, in a tuple, why it cannot be had."""
    try:
        if path.is_dir():
            with (path / name).open("rb") as file:
                data = file.read(MAX_FILE + 1)
        else:
            with zipfile.ZipFile(path) as archive, archive.open(name) as file:
                data = file.read(MAX_FILE + 1)  # stops there, whatever size the archive claims
        if len(data) > MAX_FILE:
            return (f"more than {MAX_FILE >> 20} MiB; refused",)
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return ("no UTF-8 text; refused",)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
        return (f"cannot be read: {error}",)
