"""Where the libraries are installed: this Python, or an environment of their own beside the course's."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = ".venv-libraries"
VARIABLE = "DTLEARN_LIBRARIES_PYTHON"
HOW_TO_INSTALL = (
    "`make libraries` puts DeepSpeed, Megatron-core and FairScale into an environment of their own, "
    f"{FOLDER}, which uses the course's torch; the stored results are shown until then"
)
PACKAGES = {"deepspeed": "deepspeed", "megatron.core": "megatron-core", "fairscale": "fairscale"}


class LibraryMissing(ValueError):
    """A library is installed nowhere that the course looks."""


def is_installed(module: str) -> bool:
    """Whether this Python can import a module; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


def libraries_python() -> Path | None:
    """The Python of the libraries' environment: $DTLEARN_LIBRARIES_PYTHON, or one in `.venv-libraries`; None: none."""
    asked = os.environ.get(VARIABLE)
    place = Path(asked) if asked else Path(sys.prefix).parent / FOLDER / "bin" / "python"
    return place if place.is_file() and os.access(place, os.X_OK) else None


def wrong_variable() -> str:
    """What is wrong with $DTLEARN_LIBRARIES_PYTHON, in a clause; "" if it is not set, or names a program."""
    asked = os.environ.get(VARIABLE)
    return f"{VARIABLE} is {asked!r}, which is no program" if asked and libraries_python() is None else ""


@cache
def _can_import(python: Path, module: str) -> bool:
    """Whether another Python can import a module, and torch: an environment that is half made can have one of them."""
    names = (module.partition(".")[0], "torch")
    code = f"import importlib.util as u; print('found' if all(map(u.find_spec, {names!r})) else 'missing')"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:  # a file that is no program
        return False
    return done.stdout.strip() == "found"


def python_with(module: str) -> Path:
    """A Python that can import `module`: this one if it can.

    Raises:
        LibraryMissing: there is none; the text says how to install it.
    """
    if not module or is_installed(module):
        return Path(sys.executable)
    python = libraries_python()
    if python is None or not _can_import(python, module):
        name = PACKAGES.get(module, module)
        if wrong := wrong_variable():
            raise LibraryMissing(f"{name} is not installed in the course's Python, and {wrong}: unset {VARIABLE}")
        where = "in the course's Python" + (f", nor in {python}" if python else f", and there is no {FOLDER}")
        raise LibraryMissing(f"{name} is not installed {where}. {HOW_TO_INSTALL}")
    return python


def versions(*packages: str) -> dict[str, str]:
    """Versions of the packages that are installed here, by name; without the build ("2.13.0", not "2.13.0+cpu")."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def answer_of(python: Path, module: str, question: Any, seconds: float) -> Any:
    """Have another Python answer a question: `python -m module FILE FILE` reads the first and writes the second.

    Args:
        question: what JSON can hold; the answer is that too.

    Raises:
        RuntimeError: it failed, with the last lines that it said, or took longer than `seconds`.
    """
    with tempfile.TemporaryDirectory(prefix="dtlearn-libraries-") as folder:
        asked, answered = Path(folder, "asked.json"), Path(folder, "answered.json")
        asked.write_text(json.dumps(question), "utf-8")
        path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])  # ninja is looked up by its name
        try:
            done = subprocess.run(
                [python, "-m", module, asked, answered],
                capture_output=True,
                text=True,
                timeout=seconds,
                env={**os.environ, "PATH": path},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"the run in {python} did not end within {seconds:.0f} s. If it was building an operator, `dtlearn "
                "doctor` finds the lock that it left; torch_adam: true builds none"
            ) from None
        except OSError as error:
            raise RuntimeError(f"{python} cannot be started ({error.strerror}): unset {VARIABLE}") from None
        if done.returncode:
            last = "\n".join(done.stderr.strip().splitlines()[-12:])
            raise RuntimeError(f"the run in {python} failed. Its last lines:\n{last}")
        try:
            return json.loads(answered.read_text("utf-8"))
        except (OSError, ValueError):
            raise RuntimeError(f"{python} ended well and gave no answer: is it a Python?") from None
