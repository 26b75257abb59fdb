"""The process that starts the other launchers; its launches themselves are in test_bench_launch.py."""

import os
import sys
import time
from pathlib import Path

import pytest

from dtlearn.bench.platform import other_launchers
from dtlearn.bench.platform.other_launchers import SPAWN, Rivals
from dtlearn.runtime.errors import DtlearnError

ANSWERS = """
import subprocess, sys

def main():
    print("{}", flush=True)
    worker = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL)
    for answer in ('{"seconds": 1.5}', '{"error": "KeyError: port"}', f'{{"seconds": {worker.pid}}}'):
        sys.stdin.readline()
        print(answer, flush=True)
    sys.stdin.readline()
    sys.exit("the last words")
"""


@pytest.fixture
def plays(monkeypatch, tmp_path):
    """A text in the place of the server's module."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(other_launchers, "_SERVER", "played_server")
    return (tmp_path / "played_server.py").write_text


@pytest.fixture
def rivals(plays):
    plays(ANSWERS)
    rivals = Rivals()
    yield rivals
    rivals.close()


def test_answers_are_times_or_errors(rivals):
    assert rivals.seconds(SPAWN, 2) == 1.5
    with pytest.raises(DtlearnError, match="KeyError: port"):
        rivals.seconds(SPAWN, 2)
    rivals.seconds(SPAWN, 2)
    for _ in range(2):
        with pytest.raises(DtlearnError, match="the last words"):
            rivals.seconds(SPAWN, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_closing_ends_the_workers_too(rivals):
    rivals.seconds(SPAWN, 2)
    with pytest.raises(DtlearnError):
        rivals.seconds(SPAWN, 2)
    worker = int(rivals.seconds(SPAWN, 2))
    os.kill(worker, 0)
    rivals.close()
    deadline = time.monotonic() + 5
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(worker)


def test_a_launch_that_hangs_is_ended(monkeypatch, plays):
    plays("import sys\ndef main():\n    print({}, flush=True)\n    sys.stdin.read()\n")
    rivals = Rivals()
    monkeypatch.setattr(other_launchers, "_PATIENCE", 0.2)
    try:
        with pytest.raises(DtlearnError, match="no result within"):
            rivals.seconds(SPAWN, 2)
        assert rivals.process.exit_code is not None
    finally:
        rivals.close()


def test_a_process_that_does_not_come_up_is_told(plays):
    plays("raise ImportError('no torch')")
    with pytest.raises(DtlearnError, match="ImportError: no torch"):
        Rivals()


def is_running(pid):
    """Whether it lives; a zombie, which nobody has buried yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
