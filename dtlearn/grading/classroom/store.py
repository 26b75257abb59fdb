"""Results of a class on disk: one file per submission and exercise, whole or not there at all."""

import hashlib
import tempfile
from pathlib import Path

from ...runtime.machine.whole_file import write_whole
from ..verdict import Verdict
from .submissions import safe_name


class ResultStore:
    """A folder of verdicts, `<folder>/<student>/<exercise id>.json`. Raises ValueError if it cannot be written.

    `keep`: it is only read, and left as it is.
    """

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self.folder = folder
        if keep:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)  # it may have been there before
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ValueError(
                f"results cannot be written to {folder}: {error.strerror}. Choose another --out"
            ) from error

    def path(self, student: str, exercise: str) -> Path:
        return self.folder / safe_name(student) / f"{exercise}.json"

    def save(self, student: str, verdict: Verdict, source: str) -> None:
        """Write a verdict. A crash in the middle leaves the old one, or none."""
        path = self.path(student, verdict.exercise)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_whole(path, verdict.to_json())
        write_whole(path.with_suffix(".sha256"), fingerprint(source))

    def load(self, student: str, exercise: str, source: str) -> Verdict | None:
        """The verdict on this very text; None if there is none, or it is damaged."""
        path = self.path(student, exercise)
        try:
            if path.with_suffix(".sha256").read_text() != fingerprint(source):
                return None
            return Verdict.from_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def fingerprint(source: str) -> str:
    return hashlib.sha256(source.encode(errors="replace")).hexdigest()
