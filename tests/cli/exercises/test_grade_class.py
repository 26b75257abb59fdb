"""`dtlearn grade-class`: a class from the command line, to the files that it leaves."""

import csv
import json
import os
import stat

import pytest

from dtlearn import course as course_module
from dtlearn.cli import main
from dtlearn.cli.exercises.grade_class import read_secret
from dtlearn.grading.classroom import batch
from tests.grading.conftest import RIGHT, write_course


@pytest.fixture
def class_folder(tmp_path, monkeypatch):
    """A course with one exercise, and three submissions."""
    write_course(tmp_path)
    monkeypatch.setattr(course_module, "find_root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    for student, text in {"ann": RIGHT, "bob": RIGHT.replace(" / dist.get_world_size()", ""), "=eve": ""}.items():
        folder = tmp_path / "in" / student
        folder.mkdir(parents=True)
        if text:
            (folder / "mean.py").write_text(text)
    return tmp_path


def test_a_class_is_graded_to_files(class_folder, capsys):
    (class_folder / "students.csv").write_text(
        "submission,student_id,last_name\nann,a1,Lovelace\nbob,b2,Babbage\n", encoding="utf-8"
    )
    assert main(["grade-class", "in", "--students", "students.csv", "--out", "out"]) == 0
    printed = capsys.readouterr()
    assert "3 of 3" in printed.out and "DTL-VALUE-FACTOR" in printed.out
    assert "not in the table of students: =eve" in printed.err
    out = class_folder / "out"
    verdict = json.loads((out / "bob" / "ch01.mean.json").read_text())
    assert (verdict["state"], verdict["score"]) == ("failed", 0.0)
    assert verdict["isolation"].startswith("level 2")
    assert "exactly 2x" in (out / "bob" / "feedback.txt").read_text()
    assert "<table" in (out / "summary.html").read_text()
    rows = list(csv.DictReader((out / "nbgrader.csv").read_text().splitlines()))
    assert [(r["student_id"], r["last_name"], r["score"]) for r in rows if r["student_id"] in ("a1", "b2")] == [
        ("a1", "Lovelace", "4.0"),
        ("b2", "Babbage", "0.0"),
    ]
    assert not any(cell.startswith("=") for row in rows for cell in row.values())
    assert len((out / "lti.jsonl").read_text().splitlines()) == 3
    assert "ch01.mean" in (out / "canvas.csv").read_text()
    for student in ("ann", "bob"):
        assert {p.name for p in (out / student).iterdir()} >= {"feedback.html", "junit.xml", "gradescope.json"}
    assert stat.S_IMODE(os.stat(class_folder / "out.secret").st_mode) == 0o600


def test_the_second_time_nothing_is_graded_again(class_folder, capsys, monkeypatch):
    assert main(["grade-class", "in", "--out", "out"]) == 0
    monkeypatch.setattr(batch, "_grade", lambda *a, **k: pytest.fail("graded again"))
    assert main(["grade-class", "in", "--out", "out"]) == 0


def test_a_fault_of_the_grader_is_exit_code_3(class_folder, capsys, monkeypatch):
    check = class_folder / "dtlearn" / "checks" / "ch01_ranks" / "mean.py"
    check.write_text(check.read_text().replace("g = case.generator()", "1 / 0"))
    assert main(["grade-class", "in", "--out", "out"]) == 3
    assert "ZeroDivisionError" in (class_folder / "out" / "summary.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "cannot be read"),
        (["in", "--exercises", "ch07"], "ch07"),
        (["in", "--out", "in/ann/mean.py/x"], "cannot be written"),
        (["in", "--secret", "nowhere/secret"], "choose another --secret"),
    ],
)
def test_wrong_arguments_are_usage_errors(class_folder, capsys, arguments, words):
    assert main(["grade-class", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_secret_is_made_once_and_a_short_one_refused(tmp_path):
    first = read_secret(tmp_path / "s")
    assert len(first) == 64
    assert read_secret(tmp_path / "s") == first
    (tmp_path / "t").write_text("abc")
    with pytest.raises(ValueError, match="at least 16 bytes"):
        read_secret(tmp_path / "t")
