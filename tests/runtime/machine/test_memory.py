import pytest

from dtlearn.runtime.machine import memory
from dtlearn.runtime.machine.memory import GIB

MEMINFO = "MemTotal:       8388608 kB\nMemFree:  10 kB\nMemAvailable:   4194304 kB\nHugePages_Total:       0\n"
V1, V2 = "/sys/fs/cgroup/memory/", "/sys/fs/cgroup/"


@pytest.fixture
def files(monkeypatch):
    found = {"/proc/meminfo": MEMINFO}
    monkeypatch.setattr(memory, "_read", lambda path: found.get(str(path), ""))
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
    del files["/proc/meminfo"]
    monkeypatch.delattr("os.sysconf")
    assert memory.memory() is None
    assert memory.free_memory() is None


def test_processes_ended_for_memory_are_counted(files):
    assert memory.oom_kills() == -1
    files["/proc/vmstat"] = "pgfault 7\noom_kill 3\n"
    assert memory.oom_kills() == 3


def test_this_machine_has_memory():
    total, free = memory.memory()
    assert total >= free > 0
