import os

import pytest

from dtlearn.cli import machine
from dtlearn.cli.machine import GIB

MEMINFO = "MemTotal:       8388608 kB\nMemFree:  10 kB\nMemAvailable:   4194304 kB\nHugePages_Total:       0\n"


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


def test_memory_without_a_limit(monkeypatch):
    fake_files(monkeypatch, {"/proc/meminfo": MEMINFO, "/sys/fs/cgroup/memory.max": "max\n"})
    assert machine.memory() == (8 * GIB, 4 * GIB)


def test_memory_of_a_container(monkeypatch):
    limit = {"/sys/fs/cgroup/memory.max": str(2 * GIB), "/sys/fs/cgroup/memory.current": str(GIB)}
    fake_files(monkeypatch, {"/proc/meminfo": MEMINFO, **limit})
    assert machine.memory() == (2 * GIB, GIB)


def test_this_machine_has_cores_and_memory():
    total, free = machine.memory()
    assert machine.num_cores() >= 1
    assert total >= free > 0
    assert machine.load_line().startswith(f"{machine.num_cores()} core")
