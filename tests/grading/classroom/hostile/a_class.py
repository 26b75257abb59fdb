"""A class of honest and hostile hand-ins, graded from the command line by a process of its own; and what it leaves."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.grading.small_course import commit, small_course

from .hand_in import HandIn
from .honest import RULES, Row, make_honest
from .own_answer import RULE

REPOSITORY = Path(__file__).parents[4]
# Grades as the command does, in another course, and writes down all verdicts. A shell may have told it to ignore
# interrupts, as it does for programs in the background.
GRADE = """
import json, pathlib, sys
from dtlearn import course
from dtlearn.cli import main
from dtlearn.grading.classroom import batch
from dtlearn.runtime.machine.processes import take_interrupts

root, said, *arguments = sys.argv[1:]
take_interrupts()
course.find_root = lambda: pathlib.Path(root)
grade_class = batch.grade_class

def noted(plan, submissions, *args, **kwargs):
    verdicts = grade_class(plan, submissions, *args, **kwargs)
    rows = {who: [v.state, v.code, v.score, v.final] for who, (v,) in verdicts.items()}
    memory = {who: v.memory for who, (v,) in verdicts.items()}
    seeds = [plan.seed(exercise) for exercise in plan.exercises]
    said_too = {"memory": memory, "reading": {s.student: s.memory for s in submissions}, "seeds": seeds}
    pathlib.Path(said).write_text(json.dumps({"rows": rows, **said_too}))
    return verdicts

batch.grade_class = noted
sys.exit(main(["grade-class", *arguments]))
"""
# Added to the check: some texts are read for the package's own answer.
READS = f"""
import dataclasses
from dtlearn.checks.own_work import forbids

own = forbids("dtlearn.collectives")
CHECK = dataclasses.replace(CHECK, reads=[lambda source: own(source) if {RULE!r} in source else None])
"""


@dataclass
class Graded:
    """What came of a class.

    Attributes:
        rows: `{student: (state, code, score, final)}`.
        points: `{student: points in the table for nbgrader}`, "" where nothing is final.
        left: what is still there of it.
        memory, reading: bytes, by student: of the process that graded, and of the one that read.
        peak: MiB that a process had at most when we looked, by what it runs.
        descriptors: of the command, from its first verdict to its end.
        told: files of the results in which the class's seed or its secret can be read.
    """

    status: int
    seconds: float
    printed: str
    rows: dict[str, tuple[str, str, float, bool]] = field(default_factory=dict)
    points: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    reading: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    descriptors: list[int] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def prepare(root: Path, hand_ins: Iterable[HandIn], honest: int, seconds: float = 3.0) -> dict[str, Row]:
    """A course in `root`, under git, and a class in it. Returns the rows of the honest: see `honest.make_honest`."""
    small_course(root, seconds)
    check = root / "dtlearn" / "checks" / "ch01_small" / "average.py"
    check.write_text(check.read_text() + READS)
    commit(root)
    folder = root / "submissions"
    folder.mkdir()
    rows = dict(make_honest(folder, k) for k in range(honest))
    for one in hand_ins:
        one.make(folder)
    (root / "students.csv").write_text("submission\n" + "".join(f"{name}\n" for name in rows))
    (root / "rules.toml").write_text(RULES)
    return rows


def start(root: Path, level: int, *more: str) -> "subprocess.Popen[bytes]":
    """Begin to grade; its processes can be told by TMPDIR, which holds nothing else."""
    place = root.with_name(root.name + ".t")
    place.mkdir(exist_ok=True)
    trust = ["--trust-submissions"] if level < 2 else []
    tables = ["--students", "students.csv", "--rules", "rules.toml"]
    arguments = ["submissions", "--exercises", "ch01.average", "--out", "results", *tables, *trust, *more]
    with (root / "printed").open("wb") as printed:
        return subprocess.Popen(
            [sys.executable, "-c", GRADE, str(root), str(root / "said.json"), *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(place), "HOME": str(place)},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )


def verdicts_on_disk(root: Path) -> dict[str, tuple[int, int]]:
    """What is graded: `{folder of the student: what tells this file from one that is written anew}`."""
    found = {}
    for path in (root / "results").glob("*/ch01.average.json"):
        status = path.stat()
        found[path.parent.name] = (status.st_ino, status.st_mtime_ns)
    return found


def interrupt(root: Path, running: "subprocess.Popen[bytes]", verdicts: int, limit: float) -> Graded:
    """Interrupt it when so many verdicts are on disk."""
    deadline = time.monotonic() + limit
    while running.poll() is None and len(verdicts_on_disk(root)) < verdicts and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    return finish(root, running, 60.0)


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
    found, begun = Graded(0, 0.0, ""), time.monotonic()
    try:
        while running.poll() is None and time.monotonic() - begun < limit:
            for pid, (what, mebibytes) in processes(root).items():
                what = "the command" if pid == running.pid else what
                found.peak[what] = max(found.peak.get(what, 0), mebibytes)
            if verdicts_on_disk(root):
                with contextlib.suppress(OSError):
                    found.descriptors.append(len(os.listdir(f"/proc/{running.pid}/fd")))
            time.sleep(0.25)
        found.seconds = time.monotonic() - begun
    finally:
        running.kill()
        found.status = running.wait()
    deadline = time.monotonic() + 15
    while processes(root) and time.monotonic() < deadline:
        time.sleep(0.1)
    found.left = [f"process {what}" for what, _ in processes(root).values()]
    found.left += [str(p) for p in root.with_name(root.name + ".t").iterdir() if p.name.startswith("dtlearn-")]
    found.left += [str(p) for p in Path("/dev/shm").glob("dtlearn-hostile*")]
    found.printed = (root / "printed").read_text(errors="replace")
    said = root / "said.json"
    if said.exists():
        _read_results(found, root, json.loads(said.read_text()))
    return found


def _read_results(found: Graded, root: Path, said: dict) -> None:
    found.rows = {who: tuple(row) for who, row in said["rows"].items()}
    found.memory, found.reading = said["memory"], said["reading"]
    table = csv.DictReader((root / "results" / "nbgrader.csv").read_text().splitlines())
    found.points = {row["student_id"]: row["score"] for row in table}
    secrets = [str(seed) for seed in said["seeds"]] + [(root / "results.secret").read_text().strip()]
    for path in sorted(p for p in (root / "results").rglob("*") if p.is_file()):
        if any(secret in path.read_text(errors="replace") for secret in secrets):
            found.told.append(str(path))
