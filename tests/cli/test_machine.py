import os

import pytest

from dtlearn.cli import machine


@pytest.mark.parametrize(
    ("text", "cores"), [("150000 100000", 1.5), ("max 100000", None), ("", None), ("100000 0", None)]
)
def test_cpu_quota(text, cores):
    assert machine.cpu_quota(text) == cores


def fake_files(monkeypatch, files):
    monkeypatch.setattr(machine, "_read", lambda path: files.get(str(path), ""))


def test_cores_are_those_of_the_container(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    fake_files(monkeypatch, {"/sys/fs/cgroup/cpu.max": "350000 100000"})
    assert machine.num_cores() == 3
    fake_files(monkeypatch, {"/sys/fs/cgroup/cpu.max": "50000 100000"})
    assert machine.num_cores() == 1
    fake_files(monkeypatch, {})
    assert machine.num_cores() == 8


def test_this_machine_has_cores():
    assert machine.num_cores() >= 1
    assert machine.load_line().startswith(f"{machine.num_cores()} core")
