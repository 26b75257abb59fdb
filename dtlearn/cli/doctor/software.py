"""The doctor's checks of what is installed: Python, torch and its backends, packages, JupyterLab, a browser."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ...libraries.around.traps import find_traps
from ...runtime.machine.patience import TO_LOAD_TORCH
from ...runtime.machine.processes import communicate
from ..jupyterlab import INSTALL
from .check import Line

OLDEST_PYTHON, OLDEST_TORCH = (3, 11), (2, 11)
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

# Run by another interpreter: a torch whose libraries are broken can end the process that imports it.
_ASK_TORCH = """
import json, torch, torch.distributed as dist
there = dist.is_available()
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda,
    "gloo": there and dist.is_gloo_available(), "nccl": there and dist.is_nccl_available()}))
"""


@dataclass(frozen=True)
class TorchFacts:
    """What torch says of itself: its build, "2.13.0+cpu", for which CUDA (None: without), with which backends."""

    version: str = ""
    cuda: str | None = None
    gloo: bool = False
    nccl: bool = False
    error: str = ""  # the last line that it said, if it could not be loaded


def ask_torch() -> subprocess.Popen[str]:
    """Start a process that loads torch, to be used in a `with`; `hear_torch` waits for its answer."""
    command = [sys.executable, "-P", "-c", _ASK_TORCH]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def hear_torch(process: subprocess.Popen[str], seconds: float = TO_LOAD_TORCH) -> TorchFacts:
    """What the process that `ask_torch` started found."""
    try:
        said, errors = communicate(process, seconds)
    except subprocess.TimeoutExpired:
        return TorchFacts(error=f"loading it took longer than {seconds:g} s")
    try:
        return TorchFacts(**json.loads(said.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        last = (errors.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        return TorchFacts(error=last)


def check_python(version: tuple[int, int, int]) -> Line:
    text = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Line("Python", "problem", text, "The course needs 3.11 or newer: make lab PYTHON=/path/to/python3.12")
    return Line("Python", "ok", f"{text} ({sys.executable})")


def check_torch(facts: TorchFacts) -> Line:
    if facts.error:
        return Line("torch", "problem", f"cannot be loaded: {facts.error}", INSTALL)
    if _numbers(facts.version) < OLDEST_TORCH:
        return Line("torch", "problem", f"{facts.version}; the course needs 2.11 or newer", INSTALL)
    return Line("torch", "ok", f"{facts.version}, {f'built for CUDA {facts.cuda}' if facts.cuda else 'no CUDA'}")


def check_gloo(facts: TorchFacts) -> Line:
    if not facts.gloo:
        return Line("gloo", "problem", "torch was built without it, so ranks on CPU cannot talk", INSTALL)
    return Line("gloo", "ok", "available: ranks on CPU talk over it")


def check_nccl(facts: TorchFacts, num_gpus: int) -> Line:
    if facts.nccl:
        return Line("NCCL", "ok", "available: ranks with a GPU each talk over it")
    if num_gpus < 2:
        return Line("NCCL", "ok", "not in this build of torch, and not needed with fewer than 2 GPUs")
    advice = f"Install a build of torch with NCCL (make lab TORCH=cuda). {num_gpus} GPUs are of no use without it."
    return Line("NCCL", "problem", f"torch was built without it, but sees {num_gpus} GPUs", advice)


def read_pins(text: str) -> dict[str, str]:
    """`constraints.txt` as {package in lower case: version}."""
    return {name.lower(): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


def read_requirements(lines: list[str]) -> dict[str, str]:
    """What dtlearn needs, extras left out: {package in lower case: oldest version, or ""}."""
    requirements = {}
    for line in lines:
        wanted = re.match(r"([\w.-]+)[^;]*?(?:>=([\w.]+))?[^;]*(;.*extra.*)?$", line)
        if wanted and not wanted[3]:
            requirements[wanted[1].lower()] = wanted[2] or ""
    return requirements


def installed_packages(names: list[str]) -> dict[str, str]:
    """Versions of those that are installed."""
    packages = {}
    for name in names:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return packages


def check_packages(needed: Mapping[str, str], installed: Mapping[str, str], pins: Mapping[str, str]) -> Line:
    """What is installed against what dtlearn needs (oldest versions) and what was tested (pins)."""
    missing = [name for name in needed if name not in installed]
    if missing:
        return Line("packages", "problem", f"not installed: {', '.join(missing)}", INSTALL)
    old = [f"{n} {installed[n]} (needed: {v})" for n, v in needed.items() if v and _numbers(installed[n]) < _numbers(v)]
    if old:
        return Line("packages", "problem", f"too old: {', '.join(old)}", INSTALL)
    other = [
        f"{n} {installed[n]} (tested: {pins[n]})"
        for n in needed
        if n in pins and installed[n].partition("+")[0] != pins[n]
    ]
    if other:
        advice = f"They should work; if something looks odd, {INSTALL}"
        return Line("packages", "note", f"other versions than tested: {', '.join(other)}", advice)
    return Line("packages", "ok", f"the {len(needed)} that the course needs, in the versions that were tested")


def check_this_installation(root: Path | None) -> Line:
    """`check_packages` with what is installed here. `root`: the course's folder, None if there is none."""
    try:
        lines = metadata.requires("dtlearn") or []
    except metadata.PackageNotFoundError:
        return Line("packages", "problem", f"dtlearn is not installed in {sys.prefix}; notebooks need it", INSTALL)
    pins: dict[str, str] = {}
    if root is not None:
        # What the folder says now; an installation remembers what it said then.
        lines = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
        pins = read_pins((root / "constraints.txt").read_text(encoding="utf-8"))
    needed = read_requirements(lines)
    return check_packages(needed, installed_packages(list(needed)), pins)


def check_jupyterlab(problem: str) -> Line:
    """`problem`: what `jupyterlab.installation_problem` says."""
    if problem:
        return Line("JupyterLab", "problem", problem, INSTALL)
    return Line("JupyterLab", "ok", f"opens notebooks with {sys.executable}")


def check_browser(path: str | None) -> Line:
    if path:
        return Line("Chromium", "ok", f"{path} (for the browser test)")
    advice = "Chapters do not need it, the browser test of `make test` does: sudo apt install chromium"
    return Line("Chromium", "note", "not found: the browser test is skipped", advice)


def check_deepspeed() -> Line:
    """Chapter 15's real DeepSpeed: nothing of it stops a chapter."""
    trap = find_traps()
    return Line("DeepSpeed", "note" if trap.advice else "ok", trap.found, trap.advice)


def find_chromium() -> str | None:
    """Path of the browser that the browser test drives."""
    return next((path for path in map(shutil.which, _CHROMIUM) if path), None)


def _numbers(version: str) -> tuple[int, ...]:
    """ "2.13.0+cpu" -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[+a-z]", version)[0]))
