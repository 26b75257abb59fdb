"""Cores and load; what a container grants is played."""

import os

import pytest

from dtlearn.runtime.machine import cores


@pytest.mark.parametrize(
    ("text", "number"), [("150000 100000", 1.5), ("max 100000", None), ("", None), ("100000 0", None)]
)
def test_cpu_quota(text, number):
    assert cores.cpu_quota(text) == number


def fake_files(monkeypatch, files):
    monkeypatch.setattr(cores, "read", lambda path: files.get(str(path), ""))


def test_cores_are_those_of_the_container(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    fake_files(monkeypatch, {"/sys/fs/cgroup/cpu.max": "350000 100000"})
    assert cores.num_cores() == 3
    fake_files(monkeypatch, {"/sys/fs/cgroup/cpu.max": "50000 100000"})
    assert cores.num_cores() == 1
    fake_files(monkeypatch, {})
    assert cores.num_cores() == 8


def test_this_machine_has_cores():
    assert cores.num_cores() >= 1
    assert cores.load_line().startswith(f"{cores.num_cores()} core")
