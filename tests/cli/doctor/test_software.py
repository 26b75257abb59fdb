import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dtlearn.cli.doctor import software
from dtlearn.cli.doctor.software import TorchFacts
from dtlearn.libraries.around.traps import Trap

ROOT = Path(__file__).resolve().parents[3]
GOOD = TorchFacts("2.13.0+cpu", None, gloo=True, nccl=False)


@pytest.mark.parametrize(("version", "state"), [((3, 10, 9), "problem"), ((3, 11, 0), "ok"), ((3, 13, 1), "ok")])
def test_python(version, state):
    assert software.check_python(version).state == state


@pytest.mark.parametrize(
    ("facts", "state", "says"),
    [
        (GOOD, "ok", "2.13.0+cpu, no CUDA"),
        (TorchFacts("2.13.0", "13.0"), "ok", "built for CUDA 13.0"),
        (TorchFacts("2.10.1+cu128", "12.8"), "problem", "2.11 or newer"),
        (TorchFacts("2.11.0a0+git12", None), "ok", "2.11.0a0"),
        (TorchFacts(error="ImportError: libtorch.so"), "problem", "libtorch.so"),
    ],
)
def test_torch(facts, state, says):
    check = software.check_torch(facts)
    assert (check.state, says in check.found) == (state, True)
    assert bool(check.advice) == (state == "problem")


def test_gloo():
    assert software.check_gloo(GOOD).state == "ok"
    assert software.check_gloo(TorchFacts("2.13.0")).state == "problem"


def test_nccl_is_needed_where_there_are_gpus():
    assert software.check_nccl(GOOD, 0).state == "ok"
    assert software.check_nccl(GOOD, 1).state == "ok"
    assert software.check_nccl(GOOD, 2).state == "problem"
    assert software.check_nccl(TorchFacts("2.13.0", "13.0", True, True), 8).state == "ok"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import os; os.abort()", "exit code -6"),
        ("raise ImportError('libcudart.so.13: cannot open')", "ImportError: libcudart.so.13: cannot open"),
        ("import time; time.sleep(60)", "loading it took longer than 0.5 s"),
    ],
)
def test_a_torch_that_does_not_load_is_an_error_and_no_crash(monkeypatch, script, says):
    monkeypatch.setattr(software, "_ASK_TORCH", script)
    with software.ask_torch() as process:
        assert software.hear_torch(process, seconds=0.5 if "sleep" in script else 20).error == says


def test_requirements_and_pins_of_the_course_are_understood():
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    needed = software.read_requirements([*lines, 'pytest>=8; extra == "test"'])
    pins = software.read_pins((ROOT / "constraints.txt").read_text("utf-8"))
    assert len(needed) == len(lines)
    assert needed["torch"] == "2.11"
    assert "pytest" not in needed
    assert set(needed) <= set(pins)


NEEDED = {"torch": "2.11", "numpy": "1.26", "pillow": ""}
PINS = {"torch": "2.13.0", "numpy": "2.4.6", "pillow": "13.0.0"}


@pytest.mark.parametrize(
    ("change", "state", "says"),
    [
        ({}, "ok", "the 3 that"),
        ({"torch": "2.13.0+cpu"}, "ok", "tested"),
        ({"numpy": "2.3.9"}, "note", "numpy 2.3.9 (tested: 2.4.6)"),
        ({"numpy": "1.9.9"}, "problem", "numpy 1.9.9 (needed: 1.26)"),
        ({"numpy": None}, "problem", "not installed: numpy"),
    ],
)
def test_packages(change, state, says):
    installed = {name: version for name, version in {**PINS, **change}.items() if version}
    check = software.check_packages(NEEDED, installed, PINS)
    assert check.state == state
    assert says in check.found


def test_packages_that_are_not_there_are_seen():
    assert software.installed_packages(["pytest", "no-such-package-here"]) == {"pytest": pytest.__version__}


def test_jupyterlab_and_browser():
    assert software.check_jupyterlab("").state == "ok"
    assert software.check_jupyterlab("it is not installed").state == "problem"
    assert software.check_browser("/usr/bin/chromium").state == "ok"
    assert software.check_browser(None).state == "note"


def test_asking_torch_does_not_load_it_here():
    script = "import sys, dtlearn.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(("trap", "state"), [(Trap("0.19.8"), "ok"), (Trap("not installed", "make libraries"), "note")])
def test_deepspeed_never_stops_a_chapter(trap, state, monkeypatch):
    monkeypatch.setattr(software, "find_traps", lambda: trap)
    line = software.check_deepspeed()
    assert (line.state, line.found, line.advice) == (state, trap.found, trap.advice)


def test_looking_for_deepspeed_does_not_load_torch():
    code = "import dtlearn.cli.doctor.software as s, sys; s.check_deepspeed(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
