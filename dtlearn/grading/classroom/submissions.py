"""Finds what a class handed in: a folder with one folder or archive per student. Everything in it is accounted for.

Here only names and kinds of files are read; what is inside is read by `reading.reader`, in a process for each hand-in.
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
from .reading.members import TAR
from .reading.reader import read_in_process

_ASIDE = (".csv", ".html", ".json", ".log", ".md", ".toml", ".txt")  # an instructor's own, beside the hand-ins


@dataclass(frozen=True)
class Submission:
    """One hand-in of one student."""

    student: str  # the name of the folder or archive, without what follows "@"; `STUDENT/ENTRY` for an older one
    # answers, files: by exercise, its text and the name of its file inside the submission
    answers: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # what was refused, and why
    # refused, prints: by exercise, why what was handed in cannot be read; `reading.fingerprints`
    refused: dict[str, str] = field(default_factory=dict)
    prints: dict[str, frozenset[int]] = field(default_factory=dict)
    # handed_in, entry: when, by its name or when it was changed; the name of the folder or archive
    handed_in: datetime | None = None
    entry: str = ""
    memory: int = 0  # bytes that the process which read it held at most; 0 if it is not known

    def without_answer(self, exercise: Exercise) -> Verdict:
        """The verdict where there is no answer: nothing was handed in, or what was cannot be read."""
        empty = Verdict(exercise.id, exercise.title, "not-attempted", 0.0, exercise.points)
        if why := self.refused.get(exercise.id):
            return replace(empty, state="failed", results=(Result("", 0, "failed", "DTL-UNREADABLE", why),))
        said = "; ".join(p for p in self.problems if exercise.name in p or "submission" in p)
        return replace(empty, results=(Result("", 0, "not-attempted", "DTL-MISSING", said or "nothing was handed in"),))


def find_submissions(
    folder: Path, course: Course, exercises: Iterable[Exercise], strays: list[str] | None = None
) -> list[Submission]:
    """All submissions in a folder, by name; several of a student if there are. What is no hand-in is added to `strays`.

    Raises:
        ValueError: the folder cannot be read or holds no submission.
    """
    exercises, left = list(exercises), strays if strays is not None else []
    try:
        with os.scandir(folder) as entries:
            by_name = sorted(entries, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {error.strerror}") from error
    with ThreadPoolExecutor(num_cores(), thread_name_prefix="read") as pool:
        names = sorted((n for e in exercises for n in _names(course, e)), key=len, reverse=True)
        paths = [Path(entry.path) for entry in by_name if _is_hand_in(entry, left, names)]
        submissions = list(pool.map(lambda path: read_submission(path, course, exercises), paths))
    if not submissions:
        raise ValueError(f"{folder} holds no submission: it needs one folder or one .zip or .tar file per student")
    return submissions


def read_submission(path: Path, course: Course, exercises: Iterable[Exercise]) -> Submission:
    """One student's answers. What cannot be read is a problem of that submission, not an exception."""
    wanted = {name: e.id for e in exercises for name in _names(course, e)}
    status = path.lstat()
    is_folder = stat.S_ISDIR(status.st_mode)
    student, handed_in = _student_and_time(path.name if is_folder else _stem(path.name))
    handed_in = handed_in or datetime.fromtimestamp(min(max(0.0, status.st_mtime), 1e11), UTC)
    read: dict[str, Any] = {}
    if stat.S_ISLNK(status.st_mode):
        problem = "the submission is a link; refused"
    elif is_folder or (stat.S_ISREG(status.st_mode) and path.name.lower().endswith((".zip", *TAR))):
        read = read_in_process(path, wanted)
        problem = "".join(read["problems"]) if read.pop("unreadable", False) else ""
        read["problems"] = tuple(read["problems"])
    elif stat.S_ISREG(status.st_mode):
        problem = f"the submission {one_line(path.name, 80)} is no folder, .zip or .tar (.gz, .bz2, .xz); ask for one"
    else:
        problem = "the submission is no folder or file; refused"
    if problem:
        read = {"problems": (problem,), "refused": dict.fromkeys(wanted.values(), problem)}
    return Submission(student, **read, handed_in=handed_in, entry=path.name)


def safe_name(student: str) -> str:
    """A student's name as a file name; all but `a-z`, digits and `.-_`, and names of files of ours, get a checksum."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", student).strip(".-")[:80]
    ours = plain.endswith(_ASIDE) or plain.endswith((".jsonl", ".xml")) or re.search(r"-[0-9a-f]{8,}$", plain)
    checksum = hashlib.sha256(student.encode(errors="surrogatepass")).hexdigest()[:12]
    return plain if plain == student.lower() == student and not ours else f"{plain}-{checksum}"


def _is_hand_in(entry: os.DirEntry[str], strays: list[str], names: list[str]) -> bool:
    """Whether it is some student's; if not, that is said. `names`: of files that answer an exercise."""
    name, suffix, hidden = one_line(entry.name, 80), Path(entry.name).suffix.lower(), entry.name.startswith(".")
    if not hidden and not (entry.is_file(follow_symlinks=False) and suffix in (*_ASIDE, ".py", ".ipynb")):
        return True
    if hidden or suffix in _ASIDE:
        strays.append(f"({name}: {'hidden' if hidden else 'no hand-in'}; left out)")
    else:
        file = next((n for n in names if name.endswith(n)), name if suffix == ".ipynb" else "EXERCISE.py")
        student = (name.endswith(file) and name.removesuffix(file).strip("_-. ")) or "STUDENT"
        goal = f"{student}/{file}, in a folder with the name of its student"
        strays.append(f"{name}: a loose file, not graded; move it to {goal}, and run the same command again")
    return False


def _stem(name: str) -> str:
    suffix = next((s for s in (*TAR, ".zip") if name.lower().endswith(s)), Path(name).suffix)
    return name[: len(name) - len(suffix)] or name


def _student_and_time(stem: str) -> tuple[str, datetime | None]:
    """("ada", when) of "ada@2026-11-20T23:59"; in UTC, if no other zone is said."""
    student, _, text = stem.rpartition("@")
    try:
        moment = datetime.fromisoformat(text if student else "")
    except ValueError:  # no time: an address, perhaps
        return stem, None
    return student, moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _names(course: Course, exercise: Exercise) -> tuple[str, ...]:
    """Endings of a path that name this exercise, the most exact first."""
    slug = course.chapter(exercise.id.partition(".")[0]).slug
    return (f"{slug}/{exercise.name}.py", f"{exercise.id}.py", f"{slug[:4]}_{exercise.name}.py", f"{exercise.name}.py")
