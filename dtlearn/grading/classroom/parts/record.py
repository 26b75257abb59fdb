"""What a graded part of a class says of itself, `part.json` beside its verdicts, and whether parts make one class."""

import hashlib
import hmac
import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....course import Course, Exercise
from ....runtime.machine.whole_file import write_whole
from ....runtime.words import counted
from ....version import VERSION
from ...learner.exercise_files import checks_folder
from ...report.safe import one_line
from ..batch import ClassPlan
from ..reading.layouts import HandIn

FORMAT = 1
_FILE = "part.json"
_PACKAGE = Path(__file__).parents[3]


@dataclass(frozen=True)
class Part:
    """One of `of` parts, the `number`-th, from 1."""

    number: int
    of: int
    how: Mapping[str, str]  # see `how_graded`
    entries: tuple[str, ...]  # of its hand-ins, see `HandIn`, sorted
    folder: Path  # where its verdicts are

    def save(self) -> None:
        """Say that it is done."""
        data = {"format": FORMAT, "part": self.number, "of": self.of, "how": dict(self.how), "hand_ins": self.entries}
        write_whole(self.folder / _FILE, json.dumps(data, indent=1) + "\n")

    def __str__(self) -> str:
        return f"part {self.number} of {self.of}, {self.folder}"


def forget(folder: Path) -> None:
    """A part is graded there from now on: until it is done, none is."""
    (folder / _FILE).unlink(missing_ok=True)


def read_part(folder: Path) -> Part:
    """The part in a folder. Raises ValueError where none was graded to its end."""
    try:
        data = json.loads((folder / _FILE).read_text("utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"this version reads format {FORMAT} of {folder / _FILE}")
        return Part(data["part"], data["of"], data["how"], tuple(data["hand_ins"]), folder)
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        why = "it has no part.json" if isinstance(error, FileNotFoundError) else f"{folder / _FILE}: {error}"
        raise ValueError(
            f"{folder} holds no part of a class that was graded to its end ({why}): run that part's command again"
        ) from error


def entries(hand_ins: Sequence[HandIn]) -> tuple[str, ...]:
    """What a part remembers of its hand-ins."""
    return tuple(sorted(one.entry for one in hand_ins))


def how_graded(course: Course, exercises: Sequence[Exercise], plan: ClassPlan | None = None) -> dict[str, str]:
    """What must be the same in all parts of a class: in words, or as checksums. Without a plan, what is known then.

    The secret itself is not in it, and cannot be had from it.
    """
    import torch

    how = {
        "exercises": " ".join(e.id for e in exercises),
        "version of Python": platform.python_version(),
        "version of torch": str(torch.__version__),
        "version of dtlearn": VERSION,
        "code of the course": _checksum(_PACKAGE, checks_folder(course), course.root / "solutions"),
    }
    if plan is not None:
        how["hidden checks"] = _checksum(plan.hidden) if plan.hidden else "none"
        how["secret"] = hmac.new(plan.secret, b"which secret", "sha256").hexdigest()[:16]
        how["isolation level"] = str(plan.isolation.level)
    return how


def check_whole(parts: Sequence[Part], how: Mapping[str, str], shares: Sequence[Sequence[HandIn]]) -> None:
    """Raise ValueError, with what to do, unless these are all parts of one class, graded alike.

    Args:
        how: what the one who merges knows of `how_graded`.
        shares: by part, what `split` says today, into as many as the first of `parts` says.
    """
    first = parts[0]
    for part in parts:
        if part.of != first.of:
            raise ValueError(f"{first.folder} is one of {counted(first.of, 'part')}, {part.folder} one of {part.of}")
        for what, theirs in part.how.items():
            if theirs != first.how.get(what):
                raise ValueError(
                    f"{part.folder} was graded otherwise than {first.folder}. The {what}: {theirs} there, "
                    f"{first.how.get(what)} here. Grade one of them again, as the others"
                )
            if theirs != how.get(what, theirs):
                raise ValueError(
                    f"{part.folder} was graded otherwise than it is merged. The {what}: {theirs} there, {how[what]} "
                    "here. Merge with the same --exercises, in the environment that graded"
                )
    given = Counter(part.number for part in parts)
    if twice := [number for number, times in given.items() if times > 1]:
        where = " and ".join(str(part.folder) for part in parts if part.number == twice[0])
        raise ValueError(f"part {twice[0]} is there more than once: {where}. Give each part once")
    if missing := [str(number) for number in range(1, first.of + 1) if number not in given]:
        raise ValueError(
            f"of {counted(first.of, 'part')}, these are missing: {', '.join(missing)}. Grade them "
            f"(--part {missing[0]}/{first.of}), and give all folders to --merge"
        )
    for part in parts:
        here = entries(shares[part.number - 1])
        if part.entries != here:
            moved = sorted(set(part.entries) ^ set(here))
            raise ValueError(
                f"{part} was graded of other hand-ins than the folder and the table of students have now "
                f"({counted(len(moved), 'difference')}, such as {one_line(moved[0], 80)}): run its command again"
            )


def _checksum(*folders: Path) -> str:
    """A checksum of all Python files in the folders; it does not depend on where these lie."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]
