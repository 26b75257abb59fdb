"""The watch for processes left behind must see one."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LEAVES_ONE = """
import subprocess, sys

def test_leaves_a_process():
    subprocess.Popen(["sh", "-c", "{command}"], start_new_session=True)
"""


def run_session(folder: Path, command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    conftest = Path(__file__).with_name("conftest.py").read_text("utf-8")
    assert conftest.count("SECONDS_TO_VANISH = 3.0") == 1
    (folder / "conftest.py").write_text(conftest.replace("SECONDS_TO_VANISH = 3.0", f"SECONDS_TO_VANISH = {seconds}"))
    (folder / "test_it.py").write_text(LEAVES_ONE.format(command=command))
    arguments = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a second less
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", ["exec sleep 77", "sleep 77 & exit"], ids=["child", "orphan"])
def test_a_process_left_behind_fails_the_session(tmp_path, command):
    done = run_session(tmp_path, command, 0.5)
    left = [int(pid) for pid in re.findall(r"(\d+): 'sleep 77'", done.stdout)]
    for pid in set(left):
        os.kill(pid, signal.SIGKILL)
    assert left and "still alive" in done.stdout
    assert done.returncode == 1


def test_a_process_that_ends_in_time_is_fine(tmp_path):
    assert run_session(tmp_path, "sleep 0.5", 3.0).returncode == 0
