import os
import socket
import tempfile

import pytest

from dtlearn.cli.doctor import machine as m
from dtlearn.runtime.machine.memory import GIB


@pytest.mark.parametrize(("free", "ranks"), [(0, 0), (GIB // 2, 0), (GIB, 2), (4 * GIB, 14), (999 * GIB, 64)])
def test_sensible_ranks(free, ranks):
    assert m.sensible_ranks(free) == ranks


@pytest.mark.parametrize(("cores", "state", "says"), [(1, "note", "turns"), (2, "ok", "share"), (8, "ok", "8")])
def test_cores(cores, state, says):
    check = m.check_cores(cores, most_ranks=4)
    assert (check.state, says in check.found) == (state, True)


@pytest.mark.parametrize(
    ("environment", "state"),
    [
        ({}, "ok"),
        ({"OMP_NUM_THREADS": "4"}, "ok"),
        ({"OMP_NUM_THREADS": "all"}, "note"),
        ({"OMP_NUM_THREADS": "0"}, "note"),
    ],
)
def test_threads(environment, state):
    assert m.check_threads(environment).state == state


@pytest.mark.parametrize(
    ("free", "state", "says"), [(8, "ok", "room for 30"), (1.25, "note", "room for 3"), (0.6, "problem", "room for 0")]
)
def test_memory(free, state, says):
    check = m.check_memory((16 * GIB, int(free * GIB)), most_ranks=4)
    assert (check.state, says in check.found) == (state, True)
    assert ("1.5 GiB" in check.advice) == (state != "ok")


def test_unknown_memory_is_no_problem():
    assert m.check_memory(None, 4).state == "note"


@pytest.mark.parametrize(("size", "state"), [(None, "ok"), (64 << 20, "note"), (GIB, "ok")])
def test_shared_memory(size, state):
    assert m.check_shared_memory(size).state == state


def test_temp_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert m.check_temp_folder().state == "ok"
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    check = m.check_temp_folder()
    assert check.state == "problem" and "TMPDIR" in check.advice


def test_loopback(monkeypatch):
    assert m.check_loopback(["lo", "eth0"], None).state == "ok"
    assert m.check_loopback(["lo", "eth0"], "eth0").state == "ok"
    wrong = m.check_loopback(["lo", "eth0"], "eth7")
    assert wrong.state == "problem" and "lo, eth0" in wrong.advice
    assert m.check_loopback(["eth0"], None).state == "problem"

    def refuse(*args, **kwargs):
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert "unreachable" in m.check_loopback(["lo"], None).found


@pytest.mark.parametrize(("seconds", "state"), [(0.01, "ok"), (1.4, "note"), (None, "note")])
def test_host_name(seconds, state):
    assert m.check_host_name("node7", seconds, 3.0).state == state


AGENT = "python -P -c import sys; from dtlearn.runtime.agent.server import main; main(int(sys.argv[1])) 5"
SHELL = {1: (0, "init"), 50: (1, "bash"), 60: (50, "python -m ipykernel_launcher")}


@pytest.mark.parametrize(
    ("processes", "state", "says"),
    [
        ({}, "ok", "none are running"),
        ({70: (60, AGENT)}, "ok", "none are running"),
        ({70: (60, AGENT), 71: (70, AGENT), 72: (71, AGENT), 73: (71, AGENT)}, "ok", "2 ranks"),
        ({70: (1, AGENT), 71: (70, AGENT)}, "note", "1 processes have lost"),
        ({99: (50, AGENT), 100: (99, AGENT), 101: (100, AGENT)}, "ok", "none are running"),
    ],
)
def test_other_ranks(processes, state, says):
    check = m.check_other_ranks(SHELL | processes, own=99)
    assert (check.state, says in check.found) == (state, True)
    assert ("kill 70" in check.advice) == (state == "note")


def test_this_process_is_found_among_its_users():
    parent, line = m.own_processes()[os.getpid()]
    assert parent == os.getppid() and "python" in line
