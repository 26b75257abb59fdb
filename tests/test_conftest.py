"""The watch for processes left behind must see one; an interrupt must reach tests that run in the background."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py").read_text("utf-8")
LEAVES_ONE = """
import subprocess, sys

def test_leaves_a_process():
    subprocess.Popen(["sh", "-c", "{command}"], start_new_session=True)
"""

IS_INTERRUPTED = """
import os, signal, subprocess, sys, time
import pytest

def test_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

def test_an_interrupt_of_a_child():
    program = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(1)"
    child = subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    assert child.returncode == -signal.SIGINT
"""


def run_pytest(folder: Path, conftest: str, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(conftest)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n    browser\n    slow\n    gpu\n    stand_in\n    every_device\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # a second less
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False, **options
    )


def leave_behind(folder: Path, command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """A session whose test leaves this command running, and that waits so long for it to end."""
    assert CONFTEST.count("SECONDS_TO_VANISH = 20.0") == 1
    shorter = CONFTEST.replace("SECONDS_TO_VANISH = 20.0", f"SECONDS_TO_VANISH = {seconds}")
    (folder / "test_it.py").write_text(LEAVES_ONE.format(command=command))
    return run_pytest(folder, shorter)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", ["exec sleep 77", "sleep 77 & exit"], ids=["child", "orphan"])
def test_a_process_left_behind_fails_the_session(tmp_path, command):
    done = leave_behind(tmp_path, command, 0.5)
    left = [int(pid) for pid in re.findall(r"(\d+): 'sleep 77'", done.stdout)]
    for pid in set(left):
        os.kill(pid, signal.SIGKILL)
    assert left and "still alive" in done.stdout
    assert done.returncode == 1


def test_a_process_that_ends_in_time_is_fine(tmp_path):
    assert leave_behind(tmp_path, "sleep 0.5", 3.0).returncode == 0


@pytest.mark.parametrize("is_set", [True, False])
def test_interrupts_work_where_a_script_started_the_tests_in_the_background(tmp_path, is_set):
    """As `make test &` in a script does; without the lines in conftest.py the same tests fail."""
    line = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    assert CONFTEST.count(line) == 1
    conftest = CONFTEST if is_set else CONFTEST.replace(line, "pass")
    ignored = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    (tmp_path / "test_it.py").write_text(IS_INTERRUPTED)
    done = run_pytest(tmp_path, conftest, preexec_fn=ignored)
    assert ("2 passed" if is_set else "2 failed") in done.stdout, done.stdout


def test_long_files_are_first_and_a_file_keeps_its_order(tmp_path):
    (tmp_path / "test_a.py").write_text("def test_2(): pass\ndef test_1(): pass\n")
    (tmp_path / "test_b.py").write_text("import pytest\ndef test_1(): pass\n@pytest.mark.slow\ndef test_0(): pass\n")
    (tmp_path / "test_c.py").write_text("import pytest\npytestmark = pytest.mark.browser\ndef test_1(): pass\n")
    done = run_pytest(tmp_path, CONFTEST, "--collect-only")
    wanted = ["test_c.py::test_1", "test_b.py::test_1", "test_b.py::test_0", "test_a.py::test_2", "test_a.py::test_1"]
    assert done.stdout.split()[:5] == wanted


SIZES = """
import pytest

@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_of_sizes(world_size, device): pass

def test_of_one(other_device): pass
"""


def test_one_case_of_each_test_on_the_stand_in_is_in_make_test(tmp_path):
    (tmp_path / "test_it.py").write_text(SIZES)
    done = run_pytest(tmp_path, CONFTEST, "--collect-only", "-m", "not every_device")
    found = {line.partition("::")[2] for line in done.stdout.split() if "::" in line}
    assert found == {
        *(f"test_of_sizes[cpu-{size}]" for size in (1, 2, 3)),
        "test_of_sizes[stand_in-2]",
        "test_of_one[stand_in]",
    }
    on_gpus = run_pytest(tmp_path, CONFTEST, "--collect-only", "--devices", "cuda", "-m", "gpu")
    assert on_gpus.stdout.count("[cuda") == 4 and "[stand_in" not in on_gpus.stdout


def test_workers_take_whole_files_but_single_tests_of_those_that_share_nothing(tmp_path):
    notes = "import os\nimport pytest\nfrom pathlib import Path\n\n@pytest.mark.parametrize('n', range(2))\n"
    notes += "def test_it(n):\n    Path(f'{__file__}-{n}').write_text(os.environ['PYTEST_XDIST_WORKER'])\n"
    apart, whole = tmp_path / "tests/course/test_on_another_device.py", tmp_path / "tests/course/test_others.py"
    apart.parent.mkdir(parents=True)
    for file in (apart, whole):
        file.write_text(notes)
    cold = CONFTEST.replace('if sys.platform != "linux" or not', "if True or not")  # warm starts need all of `tests`
    done = run_pytest(tmp_path, cold, "-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")
    assert "4 passed" in done.stdout, done.stdout
    of_apart, of_whole = [[Path(f"{file}-{n}").read_text() for n in range(2)] for file in (apart, whole)]
    assert of_apart[0] != of_apart[1] and of_whole[0] == of_whole[1]
