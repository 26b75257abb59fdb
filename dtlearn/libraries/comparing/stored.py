"""Results of real runs, kept with their date and versions: shown where a library is missing, and held by tests.

python -m dtlearn.libraries.comparing.stored          # run all again and write the file
python -m dtlearn.libraries.comparing.stored zero2    # these only; the others stay
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .requests import REQUESTS
from .result import LibraryResult
from .run_library import run_libraries

FILE = Path(__file__).with_name("results.json")
DIGITS = 5  # of a loss, after the point: the same on every processor


@dataclass(frozen=True)
class StoredResults:
    """All stored results, by the names of `REQUESTS`.

    Attributes:
        date: when they were made, "2026-11-27".
        python: the version of Python.
        results: by name.
    """

    date: str
    python: str
    results: Mapping[str, LibraryResult]


def load_stored_results(file: Path = FILE) -> StoredResults:
    """Read the stored results.

    Raises:
        ValueError: the file is missing or is none of ours.
    """
    try:
        data = json.loads(file.read_text("utf-8"))
        results = {name: LibraryResult.from_json(row) for name, row in data["results"].items()}
        return StoredResults(data["date"], data["python"], results)
    except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} holds no stored results: `python -m dtlearn.libraries.comparing.stored`") from error


def differences(stored: LibraryResult, found: LibraryResult) -> list[str]:
    """What a new run has otherwise than the stored one: losses by `DIGITS`, calls and their bytes exactly; a line each.

    Memory and seconds are not compared: what two threads hold at once depends on their timing, by a percent or so.
    """
    lines = []
    if rounded(stored.losses) != rounded(found.losses):
        lines.append(f"losses {rounded(found.losses)}, stored {rounded(stored.losses)}")
    for rank, (before, now) in enumerate(zip(stored.ranks, found.ranks, strict=True)):
        lines += [f"rank {rank}: gone: {row}" for row in before if row not in now]
        lines += [f"rank {rank}: new: {row}" for row in now if row not in before]
    return lines


def rounded(losses: tuple[float, ...]) -> list[float]:
    return [round(loss, DIGITS) for loss in losses]


def store(names: list[str], file: Path = FILE) -> None:
    """Run these again, all if none is named, and write the file.

    Raises:
        ValueError: a name that is none of `REQUESTS`.
    """
    if unknown := [name for name in names if name not in REQUESTS]:
        raise ValueError(f"no stored run is called {', '.join(unknown)}; there are {', '.join(REQUESTS)}")
    names = names or list(REQUESTS)
    found = dict(load_stored_results(file).results) if file.is_file() else {}
    for name in names:
        (found[name],) = run_libraries([REQUESTS[name]])
        print(f"{name}: {found[name].title}, losses {rounded(found[name].losses)}", flush=True)
    ordered = {name: asdict(found[name]) for name in REQUESTS if name in found}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    data = {"date": date, "python": platform.python_version(), "results": ordered}
    file.write_text(json.dumps(data, indent=None, separators=(",", ":")).replace('{"engine"', '\n{"engine"') + "\n")


if __name__ == "__main__":
    store(sys.argv[1:])
