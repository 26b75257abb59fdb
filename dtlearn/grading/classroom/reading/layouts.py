"""Which entries of the folder are whose: one for each student, or as Moodle, Canvas and Gradescope name downloads.

Here only names and kinds of files are read; what is inside is read by `reader`, in a process for each hand-in.

    Moodle      Ada Lovelace_17_assignsubmission_file_/homework.zip, or ..._file_homework.zip; ..._onlinetext_...
    Canvas      lovelaceada_LATE_4501_99001_homework.py    of each student all files, in one folder
    Gradescope  submission_31/homework.py, and submission_metadata.yml
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...report.safe import one_line
from .members import ARCHIVE, is_of_a_system, read_as

ASIDE = (".csv", ".html", ".ini", ".json", ".log", ".md", ".toml", ".txt", ".yaml", ".yml")  # an instructor's own
_MOODLE = re.compile(r"(?P<who>.+_\d+)_assignsubmission_(?P<kind>file|onlinetext)_?(?P<file>.*)")
_CANVAS = re.compile(r"(?P<name>[^_]+)(?P<kind>_LATE|_LINK)*_(?P<number>\d+)_\d+_(?P<file>.+)")


@dataclass(frozen=True)
class HandIn:
    """One hand-in of one student, not read yet."""

    student: str  # the name of the folder or archive, without what follows "@" or what a system adds
    entry: str  # what stands in the folder, by which it is told from others of this student
    parts: tuple[tuple[Path, str], ...]  # paths, and the name of each in the hand-in; "" for one that is all of it
    handed_in: datetime | None = None  # by its name


def student_of_entry(name: str) -> str:
    """The student of an entry's name: "Ada Lovelace_17", "lovelaceada_4501", or the name itself."""
    if moodle := _MOODLE.fullmatch(name):
        return moodle["who"]
    canvas = _CANVAS.fullmatch(name)
    return f"{canvas['name']}_{canvas['number']}" if canvas else name


def is_a_class(names: Iterable[str]) -> bool:
    """Whether these files, said to be of one hand-in, are what a whole class handed in, at Moodle or Gradescope."""
    parts = {part for name in names for part in name.split("/")}
    whose = {moodle["who"] for part in parts if (moodle := _MOODLE.fullmatch(part))}
    return len(whose) > 1 or "submission_metadata.yml" in parts


def hand_in(path: Path) -> HandIn:
    """A folder or archive that is one."""
    student, handed_in = _student_and_time(path.name if path.is_dir() else _stem(path.name))
    return HandIn(student, path.name, ((path, ""),), handed_in)


def hand_ins(entries: Iterable[os.DirEntry[str]], strays: list[str], names: Sequence[str]) -> list[HandIn]:
    """All hand-ins, by name; anything else is noted in `strays`. `names`: of files that answer an exercise."""
    found: dict[str, HandIn] = {}
    for entry in entries:
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        system = _MOODLE.fullmatch(entry.name) or (None if is_folder else _CANVAS.fullmatch(entry.name))
        if system and not is_of_a_system(entry.name):
            who = student_of_entry(entry.name)
            known = found.get(who, HandIn(who, who, ()))
            name = system["file"] or ("onlinetext" if system["kind"] == "onlinetext" else "")
            found[who] = HandIn(who, who, (*known.parts, (path, name)))
        elif _is_hand_in(entry, strays, names):
            found[f"/{entry.name}"] = hand_in(path)  # under a name that nothing else has
    return list(found.values())


def _is_hand_in(entry: os.DirEntry[str], strays: list[str], names: Sequence[str]) -> bool:
    """Whether it is some student's; if not, that is said."""
    name, read, nobodys = one_line(entry.name, 80), read_as(entry.name), is_of_a_system(entry.name)
    is_loose = read.endswith((".py", ".ipynb"))
    if not nobodys and not (entry.is_file(follow_symlinks=False) and (is_loose or read.endswith(ASIDE))):
        return True
    if nobodys or not is_loose:
        why = "hidden" if entry.name.startswith(".") else "of a system" if nobodys else "no hand-in"
        strays.append(f"({name}: {why}; left out)")
    else:
        file = next((n for n in names if read.endswith(n)), name if read.endswith(".ipynb") else "EXERCISE.py")
        student = (read.endswith(file) and name[: -len(file)].strip("_-. ")) or "STUDENT"
        goal = f"{student}/{file}, in a folder with the name of its student"
        strays.append(f"{name}: a loose file, not graded; move it to {goal}, and run the same command again")
    return False


def _stem(name: str) -> str:
    suffix = next((s for s in ARCHIVE if name.lower().endswith(s)), Path(name).suffix)
    return name[: len(name) - len(suffix)] or name


def _student_and_time(stem: str) -> tuple[str, datetime | None]:
    """("ada", when) of "ada@2026-11-20T23:59"; in UTC, if no other zone is said."""
    student, _, text = stem.rpartition("@")
    try:
        moment = datetime.fromisoformat(text if student else "")
    except ValueError:  # no time: an address, perhaps
        return stem, None
    return student, moment if moment.tzinfo else moment.replace(tzinfo=UTC)
