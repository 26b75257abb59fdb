import os
import re
import subprocess
import sys

import pytest
import run_tests
from run_tests import LEFT_OUT, MOST_TRIED_AGAIN, SIDE_BY_SIDE, failed_tests, main

FLAKY = """
from pathlib import Path
def test_second_time():
    mark = Path(__file__).with_name("mark")
    seen = mark.exists()
    mark.touch()
    assert seen
def test_good():
    pass
"""


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a second and a half less for each of three processes
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    monkeypatch.setattr(run_tests, "SIDE_BY_SIDE", ["-n", "2", *SIDE_BY_SIDE[2:]])  # half a second less for each worker
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_what_passes_is_run_once(suite, capfd):
    (suite / "test_it.py").write_text("def test_it(): pass")
    assert main(["."], suite) == 0
    shown = capfd.readouterr().out
    assert "Once more" not in shown
    assert re.search(r"== \d+ s; by part.*\n  seconds  share  tests\n +\d+\.\d +\d+\.\d% +1  \.\n", shown)


def test_compiled_files_are_kept_also_where_the_environment_forbids_it(suite, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (suite / "test_it.py").write_text("def test_it(): pass")
    assert main(["."], suite) == 0
    assert list((suite / "__pycache__").glob("test_it.*-pytest-*.pyc"))


def test_what_fails_once_is_tried_again_and_named(suite, capfd):
    (suite / "test_it.py").write_text(FLAKY)
    assert main(["."], suite) == 0
    shown = capfd.readouterr().out
    assert "1 failed, 1 passed" in shown
    assert "== Passed only alone" in shown and shown.rstrip().endswith("test_it.py::test_second_time")


def test_what_fails_twice_fails(suite, capfd):
    (suite / "test_it.py").write_text("def test_it(): assert False")
    assert main(["."], suite) == 1
    assert "Passed only alone" not in capfd.readouterr().out


def test_many_failures_are_no_chance(suite, capfd):
    (suite / "test_it.py").write_text(
        FLAKY + "".join(f"def test_{i}(): assert False\n" for i in range(MOST_TRIED_AGAIN))
    )
    assert main(["."], suite) == 1
    assert "Once more" not in capfd.readouterr().out


def test_a_suite_that_cannot_be_collected_fails(suite):
    (suite / "test_it.py").write_text("import no_such_module")
    assert main(["."], suite) != 0


def test_a_notebook_is_tried_again_as_a_whole(suite):
    assert failed_tests(suite) == []
    cache = suite / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text('{"n/a.ipynb::Cell 3": true, "n/a.ipynb::Cell 4": true, "t.py::test_x[1]": true}')
    assert failed_tests(suite) == ["n/a.ipynb", "t.py::test_x[1]"]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system knows no such order")
def test_what_the_tests_start_waits_for_its_turn():
    child = "import os; print(os.sched_getscheduler(0) == os.SCHED_BATCH)"
    program = f"import run_tests, subprocess, sys; {{}}; subprocess.run([sys.executable, '-c', {child!r}], check=True)"

    def says(call):
        usual = ["import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))", program.format(call)]
        command = [sys.executable, "-c", "; ".join(usual)]
        return subprocess.run(command, cwd=run_tests.ROOT / "tools", capture_output=True, text=True, check=True).stdout

    assert (says("run_tests.take_turns()"), says("pass")) == ("True\n", "False\n")


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system knows no such order")
def test_where_that_is_forbidden_the_tests_run_all_the_same(monkeypatch):
    asked = []

    def refuse(*wanted):
        asked.append(wanted[1])
        raise PermissionError("forbidden in this container")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    run_tests.take_turns()
    assert asked == [os.SCHED_BATCH]


def test_notebooks_can_be_left_out(suite, monkeypatch):
    chosen = []
    monkeypatch.setattr("run_tests.timed_pytest", lambda arguments, folder: chosen.extend(arguments) or 0)
    assert main(["--without-notebooks"], suite) == 0
    assert "notebooks" not in chosen and chosen[:3] == ["tests", "-m", LEFT_OUT]  # slow ones, too
    chosen.clear()
    assert main([], suite) == 0
    assert "notebooks" in chosen and chosen[:3] == ["tests", "-m", f"{LEFT_OUT} and not slow"]
