"""A class of honest and hostile hand-ins, graded from the command line by a process of its own; and what it leaves."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.grading.small_course import RIGHT, WRONG, commit, small_course

from .hand_in import NAME, HandIn

REPOSITORY = Path(__file__).parents[4]
# Grades as the command does, in another course, and writes down all verdicts.
GRADE = """
import json, pathlib, sys
from dtlearn import course
from dtlearn.cli import main
from dtlearn.grading.classroom import batch

root, said, *arguments = sys.argv[1:]
course.find_root = lambda: pathlib.Path(root)
grade_class = batch.grade_class

def noted(*args, **kwargs):
    verdicts = grade_class(*args, **kwargs)
    rows = {who: [(v.state, v.code, v.score, v.final) for v in each] for who, each in verdicts.items()}
    pathlib.Path(said).write_text(json.dumps(rows))
    return verdicts

batch.grade_class = noted
sys.exit(main(["grade-class", *arguments]))
"""


@dataclass
class Graded:
    """What came of a class: `rows` is `{student: (state, code, score, final)}`; `left` says what is still there."""

    status: int
    seconds: float
    printed: str
    rows: dict[str, tuple[str, str, float, bool]]
    left: list[str] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)  # MiB, by what the process is


def prepare(root: Path, hand_ins: Iterable[HandIn], honest: int, seconds: float = 3.0) -> None:
    """A course in `root`, under git, and a class in it: honest-0 (right), honest-1 (wrong), honest-2 (right), ..."""
    small_course(root, seconds)
    commit(root)
    folder = root / "submissions"
    folder.mkdir()
    for k in range(honest):
        (folder / f"honest-{k}").mkdir()
        (folder / f"honest-{k}" / NAME).write_text(WRONG if k % 2 else RIGHT)
    for one in hand_ins:
        one.make(folder)


def start(root: Path, level: int, *more: str) -> "subprocess.Popen[bytes]":
    """Begin to grade; its processes can be told by TMPDIR, which holds nothing else."""
    place = root.with_name(root.name + ".t")
    place.mkdir(exist_ok=True)
    trust = ["--trust-submissions"] if level < 2 else []
    arguments = ["submissions", "--exercises", "ch01.average", "--out", "results", *trust, *more]
    with (root / "printed").open("wb") as printed:
        return subprocess.Popen(
            [sys.executable, "-c", GRADE, str(root), str(root / "said.json"), *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(place), "HOME": str(place)},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )


def processes(root: Path) -> dict[int, tuple[str, int]]:
    """Processes of a class that live: `{pid: (what it runs, MiB at its peak)}`."""
    mark = f"TMPDIR={root.with_name(root.name + '.t')}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                status = dict(
                    line.split(":\t") for line in (folder / "status").read_text().splitlines() if ":\t" in line
                )
                if "VmHWM" in status:
                    found[int(folder.name)] = (" ".join(words[:4])[:60], int(status["VmHWM"].split()[0]) >> 10)
    return found


def finish(root: Path, running: "subprocess.Popen[bytes]", limit: float) -> Graded:
    """Wait for the end, look at what is left, clear it."""
    begun, peak = time.monotonic(), {}
    try:
        while running.poll() is None and time.monotonic() - begun < limit:
            for what, mebibytes in processes(root).values():
                peak[what] = max(peak.get(what, 0), mebibytes)
            time.sleep(0.25)
        seconds = time.monotonic() - begun
    finally:
        running.kill()
        running.wait()
    deadline = time.monotonic() + 15
    while processes(root) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [f"process {what}" for what, _ in processes(root).values()]
    place = root.with_name(root.name + ".t")
    left += [str(p) for p in place.iterdir() if p.name.startswith("dtlearn-")]
    left += [str(p) for p in Path("/dev/shm").glob("dtlearn-hostile*")]
    said = root / "said.json"
    rows = {who: tuple(each[0]) for who, each in json.loads(said.read_text()).items()} if said.exists() else {}
    return Graded(running.returncode, seconds, (root / "printed").read_text(errors="replace"), rows, left, peak)
