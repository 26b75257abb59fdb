"""Finds what a class handed in: a folder with one folder or archive per student. Everything in it is accounted for.

`reading.layouts` says what is whose, `reading.reader` reads what is inside, in a process for each hand-in.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...course import Course, Exercise
from ...runtime.machine.cores import num_cores
from ..report.safe import one_line
from ..verdict import Result, Verdict
from .reading.layouts import ASIDE, HandIn, hand_in, hand_ins
from .reading.members import ARCHIVE
from .reading.reader import read_in_process


@dataclass(frozen=True)
class Submission:
    """One hand-in of one student."""

    student: str  # as `layouts.HandIn` has it; `STUDENT/ENTRY` for an older one
    # answers, files: by exercise, its text and the name of its file inside the submission
    answers: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # what was refused, and why
    # refused, prints: by exercise, why what was handed in cannot be read; `reading.fingerprints`
    refused: dict[str, str] = field(default_factory=dict)
    prints: dict[str, frozenset[int]] = field(default_factory=dict)
    unread: bool = False  # something was handed in and not read, though an answer is missing
    # handed_in, entry: when, by its name or when it was changed; see `layouts.HandIn`
    handed_in: datetime | None = None
    entry: str = ""
    memory: int = 0  # bytes that the process which read it held at most; 0 if it is not known

    def without_answer(self, exercise: Exercise) -> Verdict:
        """The verdict where there is no answer: nothing was handed in, or what was cannot be read."""
        empty = Verdict(exercise.id, exercise.title, "not-attempted", 0.0, exercise.points)
        if why := self.refused.get(exercise.id):
            return replace(empty, state="failed", results=(Result("", 0, "failed", "DTL-UNREADABLE", why),))
        said = [p for p in self.problems if exercise.name in p or "submission" in p]
        why = f"no answer to this exercise was found: {'; '.join(said)}" if said else "nothing was handed in"
        return replace(empty, results=(Result("", 0, "not-attempted", "DTL-MISSING", why),))


def find_hand_ins(
    folder: Path, course: Course, exercises: Iterable[Exercise], strays: list[str] | None = None
) -> list[HandIn]:
    """All hand-ins in a folder, by name, not read yet; several of a student if there are. Anything else is noted
    in `strays`.

    Raises:
        ValueError: the folder cannot be read or holds no submission.
    """
    try:
        with os.scandir(folder) as entries:
            by_name = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {error.strerror}") from error
    names = sorted((n for e in exercises for n in _names(course, e)), key=len, reverse=True)
    found = hand_ins(by_name, strays if strays is not None else [], names)
    if not found:
        raise ValueError(f"{folder} holds no submission: it needs one folder or one .zip or .tar file per student")
    return found


def read_submissions(found: Iterable[HandIn], course: Course, exercises: Iterable[Exercise]) -> list[Submission]:
    """The submissions of hand-ins, in their order, several read at once."""
    exercises = list(exercises)
    with ThreadPoolExecutor(num_cores(), thread_name_prefix="read") as pool:
        return list(pool.map(lambda one: read_submission(one, course, exercises), found))


def read_submission(one: HandIn | Path, course: Course, exercises: Iterable[Exercise]) -> Submission:
    """One student's answers. What cannot be read is a problem of that submission, not an exception."""
    one = hand_in(one) if isinstance(one, Path) else one
    wanted = {name: e.id for e in exercises for name in _names(course, e)}
    statuses = [path.lstat() for path, _ in one.parts]
    newest = max(status.st_mtime for status in statuses)
    handed_in = one.handed_in or datetime.fromtimestamp(min(max(0.0, newest), 1e11), UTC)
    path, name = one.parts[0]
    problem = _kind(path, statuses[0].st_mode) if not name else ""  # of several, each is judged by who reads it
    read: dict[str, Any] = {"problems": (problem,), "refused": dict.fromkeys(wanted.values(), problem), "unread": True}
    if not problem:
        read = read_in_process(one.parts, wanted)
        read["problems"] = tuple(read["problems"])
    return Submission(one.student, **read, handed_in=handed_in, entry=one.entry)


def _kind(path: Path, mode: int) -> str:
    """Why a folder or file is no hand-in that can be read, or ""."""
    if stat.S_ISLNK(mode):
        return "the submission is a link; refused"
    if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and path.name.lower().endswith(ARCHIVE)):
        return ""
    if stat.S_ISREG(mode):
        return f"the submission {one_line(path.name, 80)} is no folder, .zip or .tar (.gz, .bz2, .xz); ask for one"
    return "the submission is no folder or file; refused"


def safe_name(student: str) -> str:
    """A student's name as a file name; all but `a-z`, digits and `.-_`, and names of files of ours, get a checksum."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", student).strip(".-")[:80]
    ours = plain.endswith(ASIDE) or plain.endswith((".jsonl", ".xml")) or re.search(r"-[0-9a-f]{8,}$", plain)
    checksum = hashlib.sha256(student.encode(errors="surrogatepass")).hexdigest()[:12]
    return plain if plain == student.lower() == student and not ours else f"{plain}-{checksum}"


def _names(course: Course, exercise: Exercise) -> tuple[str, ...]:
    """Endings of a path that name this exercise, the most exact first."""
    slug = course.chapter(exercise.id.partition(".")[0]).slug
    return (f"{slug}/{exercise.name}.py", f"{exercise.id}.py", f"{slug[:4]}_{exercise.name}.py", f"{exercise.name}.py")
