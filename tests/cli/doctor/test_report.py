import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtlearn import cli
from dtlearn.cli.doctor import report as doctor
from dtlearn.cli.doctor import software
from dtlearn.cli.doctor.check import Line
from dtlearn.cli.doctor.report import MachineReport, Outlook
from dtlearn.course import Chapter
from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.machine.patience import crowding

ROOT = Path(__file__).resolve().parents[3]
CHAPTER = Chapter("ch01_ranks", "Ranks", "How?", (), 60, 4, "ready")
OK, NOTE = Line("cores", "ok", "4"), Line("memory", "note", "little", "Close other programs.")
PROBLEM = Line("loopback", "problem", "127.0.0.1 does not answer", "sudo ip link set lo up")


def report(*checks, room=64):
    return MachineReport(checks, (doctor.outlook(CHAPTER, checks, room),), 16, 1.23)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (report(OK, NOTE), ""),
        (report(OK, PROBLEM), "first put right: loopback"),
        (report(OK, NOTE, room=3), "it starts 4 ranks, and there is memory for 3"),
    ],
)
def test_whether_a_chapter_runs(found, reason):
    assert found.chapters == (Outlook("ch01_ranks", 4, not reason, reason),)
    assert found.ok == (not reason)


def test_table():
    assert doctor.format_report(report(OK, NOTE, PROBLEM)).splitlines() == [
        "ok      cores             4",
        "note    memory            little",
        "                          -> Close other programs.",
        "PROBLEM loopback          127.0.0.1 does not answer",
        "                          -> sudo ip link set lo up",
        "",
        "ch01_ranks: does NOT run here: first put right: loopback",
        "16 more chapters are planned.",
        "Checked in 1.2 s. To fix: loopback (-> above says how).",
    ]
    assert doctor.format_report(report(OK)).splitlines()[-3:] == [
        "ch01_ranks: runs here, with up to 4 ranks",
        "16 more chapters are planned.",
        "Checked in 1.2 s. Nothing to fix.",
    ]


def test_a_narrow_terminal_wraps_below_the_column():
    lines = doctor.format_report(report(Line("GPUs", "ok", "a long line " * 8)), width=60).splitlines()
    assert max(map(len, lines[:3])) <= 60
    assert lines[1].startswith(" " * 26) and lines[1][26] != " "


@pytest.mark.parametrize(("found", "code"), [(report(OK), 0), (report(PROBLEM), cli.WRONG)])
def test_exit_code(monkeypatch, capsys, found, code):
    monkeypatch.setattr(doctor, "examine", lambda: found)
    assert cli.main(["doctor"]) == code
    assert cli.main(["doctor", "--json"]) == code
    assert capsys.readouterr().out


def test_without_a_course_there_is_one_problem_and_no_crash(monkeypatch):
    def fail():
        raise ValueError("no course.toml in /tmp or above it")

    monkeypatch.setattr(doctor, "load_course", fail)
    course, checks = doctor._read_course()
    assert course is None
    assert [c.state for c in checks] == ["problem"]


@pytest.mark.slow
def test_the_real_doctor():
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "dtlearn", "doctor", "--json"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    seconds = time.monotonic() - begun
    found = json.loads(done.stdout)
    checks = {check["name"]: check for check in found["checks"]}
    assert done.stderr == ""
    assert not [c for c in checks.values() if c["state"] == "problem"]
    assert not [c for c in checks.values() if "could not be checked" in c["found"]]
    assert {"all-reduce", "cells on ranks", "isolation", "device rule", "memory", "host name"} <= set(checks)
    assert {"slug": "ch01_ranks", "ranks": 4, "runs": True, "reason": ""} in found["chapters"]
    assert (found["ok"], done.returncode) == (True, 0)
    assert seconds < 80 * crowding(), "a few seconds on a quiet machine"


def test_ranks_are_not_started_where_they_cannot_work(monkeypatch, capsys):
    monkeypatch.setattr(software, "_ASK_TORCH", "raise ImportError('libtorch.so: cannot open')")
    monkeypatch.setattr(doctor, "_ranks_checks", lambda *_: pytest.fail("started ranks"))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    assert cli.main(["doctor"]) == cli.WRONG
    said = capsys.readouterr().out
    # How wide the first column is depends on what else this machine has.
    assert "PROBLEM torch cannot be loaded: ImportError: libtorch.so: cannot open" in " ".join(said.split())
    assert "PROBLEM loopback" in said
    assert "ch01_ranks: does NOT run here: first put right: torch, loopback" in said


class SilentAgent:
    """An agent that does not come up."""

    def hello(self):
        raise LaunchError("it ended")

    def close(self):
        self.closed = True


def test_an_agent_that_does_not_come_up_is_a_problem_with_advice(monkeypatch):
    agent = SilentAgent()
    monkeypatch.setattr("dtlearn.runtime.agent.client.get_agent", lambda: agent)
    (check,) = doctor._ranks_checks(software.TorchFacts("2.13.0"), [], 4, None)
    assert (check.name, check.state, bool(check.advice)) == ("start of ranks", "problem", True)
    assert agent.closed
