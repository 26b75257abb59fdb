from types import SimpleNamespace

import psutil
import pytest

from dtlearn.runtime.machine import memory
from dtlearn.runtime.machine.memory import GIB

V1, V2 = "/sys/fs/cgroup/memory/", "/sys/fs/cgroup/"


@pytest.fixture
def files(monkeypatch):
    """The system's files, on a machine with 8 GiB, half of them free."""
    found = {}
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(total=8 * GIB, available=4 * GIB))
    monkeypatch.setattr(memory, "read", lambda path: found.get(str(path), ""))
    return found


def test_memory_without_a_limit(files):
    files[f"{V2}memory.max"] = "max\n"
    assert memory.memory() == (8 * GIB, 4 * GIB)
    assert memory.free_memory() == 4 * GIB


@pytest.mark.parametrize(
    ("most", "used"),
    [
        (f"{V2}memory.max", f"{V2}memory.current"),
        (f"{V1}memory.limit_in_bytes", f"{V1}memory.usage_in_bytes"),
    ],
    ids=["version 2", "version 1"],
)
def test_memory_of_a_container(files, most, used):
    files |= {most: str(2 * GIB), used: str(GIB)}
    assert memory.memory() == (2 * GIB, GIB)


def test_copies_of_files_do_not_count_as_used(files):
    files |= {f"{V2}memory.max": str(2 * GIB), f"{V2}memory.current": str(2 * GIB)}
    assert memory.free_memory() == 0
    files[f"{V2}memory.stat"] = f"anon 77\ninactive_file {GIB}\nactive_file {GIB // 2}\n"
    assert memory.free_memory() == GIB + GIB // 2


def test_a_machine_that_says_nothing(files, monkeypatch):
    def silent():
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(memory.psutil, "virtual_memory", silent)
    assert memory.memory() is None
    assert memory.free_memory() is None


def test_processes_ended_for_memory_are_counted(files):
    assert memory.oom_kills() == -1
    files["/proc/vmstat"] = "pgfault 7\noom_kill 3\n"
    assert memory.oom_kills() == 3


def test_this_machine_has_memory():
    total, free = memory.memory()
    assert total >= free > 0
    assert total <= psutil.virtual_memory().total
