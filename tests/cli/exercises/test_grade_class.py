"""`dtlearn grade-class`: a class from the command line, to the files that it leaves."""

import csv
import json
import os
import re
import signal
import stat

import pytest

from dtlearn import course as course_module
from dtlearn.cli import main
from dtlearn.cli.exercises.grade_class import read_secret
from dtlearn.grading.classroom import batch
from dtlearn.grading.verdict import Result, Verdict
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
    assert re.search(r"memory: grading an answer took up to [\d,]+ MiB \(\w+,", (out / "summary.txt").read_text())
    assert verdict["memory"] > 0
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


def test_rules_the_table_and_what_lies_about(class_folder, capsys):
    (class_folder / "students.csv").write_text(
        "submission,student_id\nann,a1\nbob,b2\n=eve,e3\nzoe,z4\nannie,a1\n", encoding="utf-8"
    )
    (class_folder / "rules.toml").write_text(
        'resubmissions = "best"\n[due]\nch01 = 2026-11-20T00:00:00Z\n[late]\nper_day = 0.25\n'
        '[canvas]\n"ch01.mean" = "The mean (48151)"\n[nbgrader]\n"ch01.mean" = "ps1"\n'
    )
    for name, text in {"annie@2026-11-20T12:00Z": RIGHT, "bob@2026-11-19T00:00Z": ""}.items():
        (class_folder / "in" / name).mkdir()
        (class_folder / "in" / name / "mean.py").write_text(text)
    os.utime(class_folder / "in" / "ann", (4e9, 4e9))  # years late
    (class_folder / "in" / "zoe_ch01.mean.py").write_text(RIGHT)
    (class_folder / "in" / "\x1b[31mrar.rar").write_text("x")
    arguments = ["grade-class", "in", "--students", "students.csv", "--rules", "rules.toml", "--out", "out"]
    assert main(arguments) == 3  # for the loose file: nothing else is for a person
    printed = capsys.readouterr()
    assert "zoe_ch01.mean.py: a loose file, not graded" in printed.err and "nothing from: zoe" in printed.err
    assert "\x1b" not in printed.out + printed.err
    out = class_folder / "out"
    rows = {row["student_id"]: row for row in csv.DictReader((out / "nbgrader.csv").read_text().splitlines())}
    assert len(rows) == 5 and {"a1", "b2", "e3", "z4"} < set(rows)
    assert {row["assignment"] for row in rows.values()} == {"ps1"}
    # The newest hand-in of a1 is worth nothing, the older one a quarter less.
    assert [rows["a1"][key] for key in ("raw_score", "late_submission_penalty", "score")] == ["4.0", "1.0", "3.0"]
    assert (rows["z4"]["score"], rows["b2"]["score"]) == ("0.0", "0.0")
    assert "The mean (48151)" in (out / "canvas.csv").read_text().splitlines()[0]
    assert "day 1 after it was due: 1 of 4 points off" in (out / "ann" / "feedback.txt").read_text()
    assert "a loose file" in (out / "summary.txt").read_text() and "a loose file" in (out / "summary.html").read_text()
    assert (out / "similarity.csv").read_text().startswith('"exercise","student"')
    for path in [out, *out.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_was_not_graded_has_empty_cells_and_is_graded_by_the_next_run(class_folder, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        left_out = Result(
            "one case", 2, "skipped", "DTL-SKIPPED-TIME", "the time limit of the whole grading was reached"
        )
        made = Verdict("ch01.mean", "Mean", "skipped", 2.0, 4.0, results=(left_out,))
        patch.setattr(batch, "_grade", lambda *a, **k: made)
        assert main(["grade-class", "in", "--out", "out"]) == 3
    assert "Not graded: 2, with empty cells" in capsys.readouterr().out
    rows = list(csv.DictReader((class_folder / "out" / "nbgrader.csv").read_text().splitlines()))
    assert sorted(row["score"] for row in rows) == ["", "", "0.0"]  # 0: nothing was handed in
    assert '"ann","","","ann","",""' in (class_folder / "out" / "canvas.csv").read_text()
    progress = [json.loads(line)["score"] for line in (class_folder / "out" / "lti.jsonl").read_text().splitlines()]
    assert sorted(one["gradingProgress"] for one in progress) == ["FullyGraded", "Pending", "Pending"]
    assert sum("scoreGiven" in one for one in progress) == 1
    assert main(["grade-class", "in", "--out", "out"]) == 0


def test_an_interrupt_in_mid_class_loses_nothing_and_nothing_is_graded_twice(class_folder, capsys, monkeypatch):
    for k in range(4):
        (class_folder / "in" / f"s{k}").mkdir()
        (class_folder / "in" / f"s{k}" / "mean.py").write_text(f"{RIGHT}\n# {k}\n")
    real, graded = batch._grade, []

    def counts(plan, exercise, answer, graders):
        graded.append(answer.source)
        if len(graded) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return real(plan, exercise, answer, graders)

    monkeypatch.setattr(batch, "_grade", counts)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main(["grade-class", "in", "--out", "out", "--workers", "1"])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert "the same command goes on from there" in capsys.readouterr().err
    done = {path.parent.name for path in (class_folder / "out").glob("*/ch01.mean.json")}
    assert 1 <= len(done) < 6
    seen = []
    monkeypatch.setattr(batch, "_grade", lambda *a: seen.append(a[2].source) or real(*a))
    assert main(["grade-class", "in", "--out", "out"]) == 0
    assert len(seen) == 6 - len(done) and len(set(seen)) == len(seen)
    rows = list(csv.DictReader((class_folder / "out" / "nbgrader.csv").read_text().splitlines()))
    assert len(rows) == 7 and all(row["score"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "cannot be read"),
        (["in", "--exercises", "ch07"], "ch07"),
        (["in", "--out", "in/ann/mean.py/x"], "cannot be written"),
        (["in", "--rules", "course.toml"], "the rules: 'chapter' is unknown"),
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
