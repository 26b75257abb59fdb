"""Where a library is looked for, and what is said if it is nowhere."""

import json
import sys
from pathlib import Path

import pytest

from dtlearn.libraries import environment
from dtlearn.libraries.environment import (
    LibraryMissing,
    answer_of,
    is_installed,
    libraries_python,
    python_with,
    versions,
    wrong_variable,
)


def test_what_is_here_runs_here():
    assert python_with("") == python_with("torch") == Path(sys.executable)
    assert is_installed("torch.distributed") and not is_installed("no_such.thing")
    assert versions("torch", "no-such-package").keys() == {"torch"}


def test_what_is_nowhere_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "python"))
    assert libraries_python() is None
    with pytest.raises(LibraryMissing, match=r"DTLEARN_LIBRARIES_PYTHON is .*, which is no program: unset"):
        python_with("no_such.library")
    monkeypatch.delenv(environment.VARIABLE)
    monkeypatch.setattr(environment, "FOLDER", str(tmp_path))
    with pytest.raises(LibraryMissing, match="make libraries"):
        python_with("no_such.library")


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_variable_that_names_no_program(mode, monkeypatch, tmp_path):
    """A text that may be executed is found out when it is."""
    file = tmp_path / "python"
    file.write_text("no program")
    file.chmod(mode)
    monkeypatch.setenv(environment.VARIABLE, str(file))
    assert bool(wrong_variable()) is (mode == 0o644)
    with pytest.raises(LibraryMissing):
        python_with("no_such.library")
    with pytest.raises(RuntimeError, match="cannot be started"):
        answer_of(file, "module", [], 60)


@pytest.mark.parametrize("script", ["exit 0", 'echo garbage > "$4"'])
def test_a_program_that_is_no_python_is_said(script, tmp_path):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="gave no answer: is it a Python"):
        answer_of(program, "module", [], 60)


def test_one_that_takes_too_long_is_said(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"did not end within 1 s. If it was building"):
        answer_of(program, "module", [], 1)


def test_another_python_is_asked(monkeypatch):
    monkeypatch.setenv(environment.VARIABLE, sys.executable)
    assert libraries_python() == Path(sys.executable)
    with pytest.raises(LibraryMissing, match="nor in"):
        python_with("no_such_library")


def test_another_python_answers(tmp_path, monkeypatch):
    module = tmp_path / "twice.py"
    module.write_text(
        "import json, sys\nx = json.load(open(sys.argv[1]))\njson.dump([2 * n for n in x], open(sys.argv[2], 'w'))"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert answer_of(Path(sys.executable), "twice", [1, 2], 60) == json.loads("[2, 4]")
    module.write_text("raise SystemExit('it went wrong')")
    with pytest.raises(RuntimeError, match="it went wrong"):
        answer_of(Path(sys.executable), "twice", [], 60)
