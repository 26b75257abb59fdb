"""Keeps every graded attempt, so that no work is ever lost: `.dtlearn/attempts/<id>/0001.py`, its verdict `0001.json`.

The text is kept before it is graded. A folder that cannot be written costs the learner the memory of an attempt and
nothing else: grading goes on, and a note says so. Several graders may keep attempts of one exercise at once. The files
are for their owner only: other learners may share the machine.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.machine.whole_file import write_new, write_whole
from ..verdict import Verdict
from .stubs import without_task

_ATTEMPT = re.compile(r"(\d{4,})\.py")
_COPY = re.compile(r"copy-(\d{4,})\.py")
_TIERS = ("", "correct", "good", "optimal")


@dataclass(frozen=True)
class Attempt:
    """One kept attempt."""

    number: int
    path: Path  # its text
    verdict: Verdict | None  # None if it was not graded to its end, or the file is damaged

    @property
    def honest(self) -> bool:
        """Whether it was graded and something was attempted."""
        return self.verdict is not None and self.verdict.state not in ("not-attempted", "error")


def attempts_folder(root: Path, exercise: str) -> Path:
    """Where the attempts at an exercise lie, in the course's folder."""
    return root / ".dtlearn" / "attempts" / exercise


def begin(folder: Path, source: str) -> tuple[int, str]:
    """Keep a text that is about to be graded: its number, and "". If it cannot be kept: 0, and a sentence on that."""
    try:
        return _keep(folder, _ATTEMPT, "", source), ""
    except OSError as error:
        return 0, _sorry(error)


def finish(folder: Path, verdict: Verdict) -> str:
    """Keep the verdict on the attempt that it names. Returns "", or a sentence that says why it is not kept."""
    try:
        write_whole(folder / f"{verdict.attempt:04}.json", verdict.to_json())
    except OSError as error:
        return _sorry(error)
    return ""


def keep_copy(folder: Path, source: str) -> Path:
    """Keep a file that is about to be replaced and was perhaps never graded; what is kept already is not kept twice.

    What was graded from a cell is kept as it was there, without the task. Returns the file that holds it. Raises
    OSError: it cannot be kept; then it must not be replaced.
    """
    kept = [m.string for pattern in (_ATTEMPT, _COPY) for m in _matches(folder, pattern)]
    known = [text.encode("utf-8", "surrogateescape") for text in (source, without_task(source))]
    for name in kept:
        with contextlib.suppress(OSError):
            if (folder / name).read_bytes() in known:
                return folder / name
    return folder / f"copy-{_keep(folder, _COPY, 'copy-', source):04}.py"


def listing(folder: Path) -> list[Attempt]:
    """All kept attempts, oldest first; [] if there are none."""
    attempts = []
    for match in _matches(folder, _ATTEMPT):
        path, verdict = folder / match.string, None
        with contextlib.suppress(OSError, ValueError):
            verdict = Verdict.from_json(path.with_suffix(".json").read_text(encoding="utf-8"))
        attempts.append(Attempt(int(match[1]), path, verdict))
    return sorted(attempts, key=lambda attempt: attempt.number)


def best(attempts: Sequence[Attempt]) -> Verdict | None:
    """The best verdict: by passing, score and tier; of equals the first."""
    verdicts = [a.verdict for a in attempts if a.honest and a.verdict is not None]
    return max(
        verdicts, key=lambda v: (v.passed, v.score, _TIERS.index(v.tier) if v.tier in _TIERS else 0), default=None
    )


def passed_at_first(attempts: Sequence[Attempt]) -> bool:
    """Whether the first honest attempt passed."""
    first = next((a.verdict for a in attempts if a.honest), None)
    return first is not None and first.passed


def hints_taken(folder: Path) -> int:
    """How many hints were shown."""
    try:
        taken = json.loads((folder / "hints.json").read_text(encoding="utf-8"))["taken"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return taken if type(taken) is int and taken >= 0 else 0


def note_hints(folder: Path, taken: int) -> str:
    """Remember how many hints were shown. Returns "", or a sentence that says why that is not kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "hints.json", json.dumps({"taken": taken, "time": round(time.time())}))
    except OSError as error:
        return f"This is not remembered: .dtlearn/attempts/{folder.name} cannot be written ({error.strerror})."
    return ""


def _matches(folder: Path, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    with contextlib.suppress(FileNotFoundError):
        return [match for match in map(pattern.fullmatch, os.listdir(folder)) if match]
    return []


def _keep(folder: Path, pattern: re.Pattern[str], prefix: str, source: str) -> int:
    """Write a text under the next number, which is returned."""
    number = 1 + max([int(m[1]) for m in _matches(folder, pattern)], default=0)
    folder.mkdir(parents=True, exist_ok=True)
    while not write_new(folder / f"{prefix}{number:04}.py", source.encode("utf-8", "surrogateescape")):
        number += 1  # another grader was quicker
    return number


def _sorry(error: OSError) -> str:
    return f"This attempt is not kept: .dtlearn/attempts cannot be written ({error.strerror or error})."
