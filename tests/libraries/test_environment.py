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
)


def test_what_is_here_runs_here():
    assert python_with("") == python_with("torch") == Path(sys.executable)
    assert is_installed("torch.distributed") and not is_installed("no_such.thing")
    assert versions("torch", "no-such-package").keys() == {"torch"}


def test_what_is_nowhere_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv(environment.VARIABLE, str(tmp_path / "python"))
    assert libraries_python() is None
    with pytest.raises(LibraryMissing, match="make libraries"):
        python_with("no_such.library")


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
