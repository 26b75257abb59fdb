import subprocess
from pathlib import Path

import build_exercises as builder
import pytest

from tests.grading.small_course import RIGHT, SOLUTION, STUB, commit, small_course

NAME = "exercises/ch01_small/average.py"
OTHER = SOLUTION.replace("return the mean over the ranks", "do it")


@pytest.fixture
def root(tmp_path) -> Path:
    return small_course(tmp_path / "kurs mit ü").root


def run(root, *args):
    return builder.main(list(args), root)


def solution(root, text):
    (root / "solutions" / "ch01_small" / "average.py").write_text(text)


def test_a_missing_stub_is_written_and_checked(root, capsys):
    (root / NAME).unlink()
    assert run(root, "--check") == 1
    assert "missing; run make exercises" in capsys.readouterr().out
    assert run(root) == 0
    assert (root / NAME).read_text() == STUB
    assert run(root, "--check") == 0


def test_a_stub_that_this_tool_wrote_is_made_anew(root):
    assert run(root) == 0
    solution(root, OTHER)
    assert run(root) == 0
    solution(root, SOLUTION)
    assert run(root) == 0, "also before a commit, again and again"
    assert (root / NAME).read_text() == STUB


def test_a_committed_stub_is_made_anew_without_a_record(root):
    commit(root)
    solution(root, OTHER)
    assert run(root, "--check") == 1
    assert run(root) == 0
    assert "ch01.average: do it" in (root / NAME).read_text()
    assert run(root, "--check") == 0


@pytest.mark.parametrize("in_git", [True, False])
def test_work_is_never_overwritten(root, capsys, in_git):
    if in_git:
        commit(root)
    run(root)
    (root / NAME).write_text(RIGHT)
    solution(root, OTHER)
    capsys.readouterr()
    assert run(root) == 0
    assert (root / NAME).read_text() == RIGHT
    assert f"{NAME}: holds work" in capsys.readouterr().out


def test_a_learner_in_the_middle_of_the_course_passes_the_check(root):
    commit(root)
    (root / NAME).write_text(RIGHT)
    assert run(root, "--check") == 0


def test_a_stale_stub_in_the_last_commit_fails_the_check(root, capsys):
    solution(root, OTHER)
    commit(root)
    assert run(root, "--check") == 1
    assert f"{NAME}: neither the file nor the last commit fits" in capsys.readouterr().out
    (root / NAME).write_text("my work")
    assert run(root, "--check") == 1, "work on top does not hide it"


def test_without_git_an_edited_file_is_told_and_accepted(root, capsys, monkeypatch):
    monkeypatch.setattr(subprocess, "run", no_git)
    (root / NAME).write_text(RIGHT)
    assert run(root, "--check") == 0
    assert "without git" in capsys.readouterr().out


def no_git(*_, **__):
    raise FileNotFoundError("git")


def test_a_bad_solution_is_told(root, capsys):
    solution(root, "x = (")
    assert run(root) == 1
    assert "error: solutions/ch01_small/average.py:1: no valid Python" in capsys.readouterr().err
    (root / "solutions" / "ch01_small" / "average.py").unlink()
    assert run(root, "--check") == 1
    assert "ch01.average: solutions/ch01_small/average.py cannot be read" in capsys.readouterr().err
