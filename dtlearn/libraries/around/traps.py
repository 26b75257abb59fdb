"""What stops DeepSpeed on a machine, found without importing it: for `dtlearn doctor`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..environment import VARIABLE, libraries_python, wrong_variable
from ..quiet_deepspeed import extensions_folder

OLDEST = (0, 19, 7)  # from here on 1-bit Adam and others are gone, and the table of keys holds
TOO_NEW = (0, 20)
STALE = 600.0  # seconds: no operator takes so long to compile
TORCHS_OWN = Path.home() / ".cache" / "torch_extensions"


@dataclass(frozen=True)
class Trap:
    """What was found, in a clause, and what to do; no advice: nothing is wrong."""

    found: str
    advice: str = ""


def find_traps(prefix: Path | None = None) -> Trap:
    """The first thing that stands in DeepSpeed's way, or that nothing does.

    Args:
        prefix: of the environment that has DeepSpeed; None: this one, or `.venv-libraries`.
    """
    python = libraries_python()
    places = [prefix] if prefix else [Path(sys.prefix), *([python.parent.parent] if python else [])]
    if prefix is None and (wrong := wrong_variable()):
        return Trap(f"{wrong}: chapter 15 shows stored results", f"unset {VARIABLE}")
    found = next(((place, version) for place in places if (version := installed_version(place))), None)
    if found is None:
        return Trap("not installed: chapter 15 shows stored results", "To run the real one: make libraries")
    place, version = found
    if not OLDEST <= version < TOO_NEW:
        numbers = "its keys and defaults are not those of chapter 15 (0.19.7 to 0.19.x)"
        return Trap(f"{version_text(place)}: {numbers}", "make libraries")
    if locks := stale_locks([extensions_folder(), TORCHS_OWN]):
        return Trap(
            f"a build was interrupted and left {locks[0]}; whoever builds it next waits for ever, without a word",
            f"rm {shlex.join(map(str, locks))}",
        )
    text = version_text(place)
    if missing := missing_for_builds(place):
        return Trap(
            f"{text}; {' and '.join(missing)} not found, so DeepSpeed's own Adam cannot be built here",
            "Chapter 15 needs none: torch_adam is torch's. To build it: sudo apt install g++, and ninja from pip",
        )
    return Trap(f"{text} in {place}")


def installed_version(prefix: Path) -> tuple[int, ...]:
    """The version of the DeepSpeed in an environment, (0, 19, 8); () if it has none."""
    numbers = re.match(r"\d+(\.\d+)*", version_text(prefix))
    return tuple(map(int, numbers[0].split("."))) if numbers else ()


def version_text(prefix: Path) -> str:
    """That version as it is written, with what follows the numbers, "0.19.9rc1"; "" if there is none."""
    folders = sorted(prefix.glob("lib/python*/site-packages/deepspeed-*.dist-info"))
    texts = [folder.name.removeprefix("deepspeed-").removesuffix(".dist-info") for folder in folders]
    return next((text for text in texts if text[:1].isdigit()), "")


def stale_locks(folders: Iterable[Path], now: float | None = None) -> list[Path]:
    """Lock files of torch's builds that nobody can be holding any more."""
    now = time.time() if now is None else now
    files = (file for folder in folders if folder.is_dir() for file in sorted(folder.rglob("lock")))
    return [file for file in files if file.is_file() and now - file.stat().st_mtime > STALE]


def missing_for_builds(prefix: Path) -> list[str]:
    """What a build of an operator looks for by its name, and would not find."""
    compilers = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    missing = [] if any(map(shutil.which, filter(None, compilers))) else ["a C++ compiler"]
    has_ninja = (prefix / "bin" / "ninja").is_file() or shutil.which("ninja")
    return missing if has_ninja else [*missing, "ninja"]
