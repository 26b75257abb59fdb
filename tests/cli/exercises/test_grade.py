import json
import os
from xml.etree import ElementTree as ET

import pytest

from dtlearn import cli
from dtlearn.cli.exercises import grade
from dtlearn.cli.exercises.grade import FORMATS, write_reports
from dtlearn.grading.learner import attempts
from dtlearn.grading.verdict import Verdict
from dtlearn.runtime.errors import LaunchError
from tests.grading.small_course import ID, RIGHT, WRONG, small_course


@pytest.mark.parametrize("what", [[], ["ch01"], ["ch01_small"], [ID]])
def test_right_answers_end_with_0(course, file, capsys, what):
    file.write_text(RIGHT)
    assert cli.main(["grade", *what]) == grade.PASSED
    said = capsys.readouterr()
    assert "PASSED" in said.out and said.err == ""
    assert len(attempts.listing(attempts.attempts_folder(course.root, ID))) == 1


def test_a_wrong_answer_ends_with_1_and_its_seed_repeats_it(course, file, capsys):
    file.write_text(WRONG)
    assert cli.main(["grade", ID, "--seed", "5"]) == grade.NOT_PASSED
    said = capsys.readouterr().out
    assert "DTL-VALUE-FACTOR" in said and f"dtlearn grade {ID} --seed 5" in said and "\x1b" not in said


def test_a_stub_is_not_attempted_and_no_pass(course, capsys):
    assert cli.main(["grade"]) == grade.NOT_PASSED
    assert "not attempted" in capsys.readouterr().out.lower()


def test_another_file(course, tmp_path, file):
    (tmp_path / "mine.py").write_text(RIGHT.replace("total", "summed"))
    assert cli.main(["grade", ID, "--file", str(tmp_path / "mine.py")]) == grade.PASSED


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ch01.none"], "there is no exercise 'ch01.none'; the exercises of ch01 are ch01.average"),
        (["ch09"], "there is no chapter 'ch09'"),
        ([ID, "--file", "/nowhere/a.py"], "/nowhere/a.py does not exist"),
        ([ID, "--json", "/nowhere/a.json"], "no file in a folder that exists"),
        ([ID, "--seed", "x"], "invalid int value"),
    ],
)
def test_wrong_usage_ends_with_2(course, capsys, arguments, says):
    assert cli.main(["grade", *arguments]) == cli.USAGE
    assert says in capsys.readouterr().err


def test_a_course_without_exercises_says_so(course, capsys, tmp_path, monkeypatch):
    bare = small_course(tmp_path / "bare")
    (chapter,) = bare.chapters
    object.__setattr__(chapter, "exercises", ())
    monkeypatch.setattr(grade, "load_course", lambda: bare)
    assert cli.main(["grade"]) == cli.USAGE
    assert "the course has no exercises yet" in capsys.readouterr().err
    assert cli.main(["grade", "ch01"]) == cli.USAGE
    assert "ch01_small has no exercises yet" in capsys.readouterr().err


def test_what_the_grader_cannot_do_ends_with_3(course, file, capsys, monkeypatch):
    file.write_text(RIGHT)
    check = course.root / "dtlearn/checks/ch01_small/average.py"
    check.write_text(check.read_text().replace("total = sum", "1 / 0\n    total = sum"))
    assert cli.main(["grade", ID]) == grade.GRADER_ERROR
    assert "ZeroDivisionError" in capsys.readouterr().out

    def no_ranks(*_, **__):
        raise LaunchError("no processes left")

    monkeypatch.setattr("dtlearn.grading.learner.grade_file.grade_file", no_ranks)
    assert cli.main(["grade", ID]) == grade.GRADER_ERROR
    assert capsys.readouterr().err == "dtlearn grade: no processes left\n"


def test_reports_are_written(course, file, tmp_path):
    file.write_text(WRONG)
    names = {name: tmp_path / f"report.{name}" for name in ("json", "junit", "gradescope", "html")}
    assert cli.main(["grade", *[part for n, p in names.items() for part in (f"--{n}", str(p))]]) == grade.NOT_PASSED
    (data,) = json.loads(names["json"].read_text())
    assert Verdict.from_json(json.dumps(data)).code == "DTL-VALUE-FACTOR"
    assert ET.fromstring(names["junit"].read_text()).get("failures") == "1"
    assert json.loads(names["gradescope"].read_text())["score"] == 0
    page = names["html"].read_text()
    assert page.startswith("<!DOCTYPE html>") and "DTL-VALUE-FACTOR" in page


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_report_that_cannot_be_written_is_told(course, file, tmp_path, capsys):
    tmp_path.chmod(0o500)
    try:
        assert cli.main(["grade", ID, "--json", str(tmp_path / "a.json")]) == cli.USAGE
    finally:
        tmp_path.chmod(0o700)
    assert "--json" in capsys.readouterr().err


def test_several_are_summed_up():
    verdicts = [Verdict(ID, "T", "passed", 4, 4), Verdict(ID, "T", "failed", 1.5, 4)]
    assert grade.summary(verdicts) == "1 of 2 exercises passed, 5.5 of 8 points"


def test_only_what_was_asked_for_is_written(tmp_path):
    write_reports([], {**dict.fromkeys(FORMATS), "json": tmp_path / "a.json"})
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"] and (tmp_path / "a.json").read_text() == "[]\n"


def test_a_folder_that_went_away_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"--html: .*a\.html cannot be written: No such file"):
        write_reports([], {"html": tmp_path / "gone" / "a.html"})
