"""`dtlearn grade-class`: a class from the command line, to the files that it leaves."""

import csv
import io
import json
import os
import re
import signal
import stat
import zipfile
from datetime import datetime

import pytest

from dtlearn import course as course_module
from dtlearn.cli import main
from dtlearn.cli.exercises import grade_class
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
    assert re.search(r"^memory: grading an answer took up to [\d,]+ MiB \(\w+,", printed.out, re.M)
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


def zipped(**files):
    """The bytes of an archive; `__` stands for the dot."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return made.getvalue()


def notebook(*cells, nbformat=4):
    made = [{"cell_type": "code", "metadata": {}, "source": text} for text in cells]
    return json.dumps({"nbformat": nbformat, "cells" if nbformat > 3 else "worksheets": made})


WRONG = RIGHT.replace(" / dist.get_world_size()", "")
CELL = f"%%exercise ch01.mean{RIGHT}"
# What three systems let an instructor download, and what becomes of each: the code of its verdict ("": passed).
DOWNLOADS = {
    "Moodle_1_assignsubmission_file_/homework.zip": (zipped(ch01_ranks__py="", mean__py=RIGHT), "Moodle_1", ""),
    "Moodle_1_assignsubmission_onlinetext_/onlinetext.html": ("<p>mine", "Moodle_1", ""),
    "Windows_2_assignsubmission_file_/hw.zip": (zipped(**{"hw\\ch01_ranks\\mean__py": RIGHT}), "Windows_2", ""),
    "Zip_3_assignsubmission_file_hw.zip": (zipped(a__zip=zipped(mean__py=WRONG)), "Zip_3", "DTL-VALUE-FACTOR"),
    "Deep_4_assignsubmission_file_hw.zip": (zipped(a__zip=zipped(b__zip=b"")), "Deep_4", "DTL-UNREADABLE"),
    "Pdf_5_assignsubmission_file_/homework.pdf": ("%PDF", "Pdf_5", "DTL-UNREADABLE"),
    "Text_6_assignsubmission_onlinetext_/onlinetext.html": ("<p>mine", "Text_6", "DTL-UNREADABLE"),
    "canvas_11_901_mean-1.py": (RIGHT, "canvas_11", ""),
    "canvas_11_902_notes.docx": ("x", "canvas_11", ""),
    "late_LATE_12_903_Mean.PY": (RIGHT, "late_12", ""),
    "textual_13_904_mean.py.txt": (RIGHT, "textual_13", ""),
    "word_14_905_mean.docx": ("x", "word_14", "DTL-UNREADABLE"),
    "named_15_906_homework.py": (RIGHT, "named_15", "DTL-UNREADABLE"),
    "submission_21/ch01_ranks.ipynb": (notebook("import torch", f"\n\n{CELL}"), "submission_21", ""),
    "submission_22/ch01_ranks.ipynb": (notebook(f"%%time\n{CELL}"), "submission_22", ""),
    "submission_23/ch01_ranks.ipynb": (notebook(f"%%exercise ch01.mean{WRONG}", CELL), "submission_23", ""),
    "submission_24/ch01_ranks.ipynb": (notebook(nbformat=3), "submission_24", "DTL-UNREADABLE"),
    "submission_25/mean.7z": ("7z", "submission_25", "DTL-UNREADABLE"),
    "submission_26/Thumbs.db": ("x", "submission_26", "DTL-MISSING"),
    "submission_metadata.yml": (":submission_21: {}", "", ""),
    "Thumbs.db": ("x", "", ""),
    "desktop.ini": ("x", "", ""),
    "__MACOSX/._canvas_11_901_mean-1.py": ("x", "", ""),
}


@pytest.mark.slow
def test_downloads_of_moodle_canvas_and_gradescope_are_graded_in_one_run(class_folder, capsys):
    """Everything in them is accounted for, and nobody gets 0 in silence."""
    for name, (data, _, _) in DOWNLOADS.items():
        path = class_folder / "all" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    table = "submission,student_id\nMoodle_1_assignsubmission_file_,m1\ncanvas_11_901_mean-1,c11\nsubmission_21,g21\n"
    (class_folder / "students.csv").write_text(table)
    assert main(["grade-class", "all", "--students", "students.csv", "--out", "out"]) == 3
    rows = csv.DictReader((class_folder / "out" / "nbgrader.csv").read_text().splitlines())
    scores = {row["student_id"]: row["score"] for row in rows}
    ids = {"Moodle_1": "m1", "canvas_11": "c11", "submission_21": "g21"}
    codes = {who: code for _, who, code in DOWNLOADS.values() if who}
    assert scores == {ids.get(who, who): "0.0" if code else "4.0" for who, code in codes.items()}
    summary = (class_folder / "out" / "summary.txt").read_text()
    unread = sorted(who for who, code in codes.items() if code == "DTL-UNREADABLE")
    told = " ".join(summary.split())
    assert f"handed in and not read, whole or in part (exit status 3): {', '.join(unread)} (" in told
    for who, code in codes.items():
        verdicts = list((class_folder / "out").glob(f"{who}*/ch01.mean.json"))
        assert bool(verdicts) == (code not in ("DTL-UNREADABLE", "DTL-MISSING"))
        assert not verdicts or json.loads(verdicts[0].read_text())["results"][-1]["code"] == code
    for words in (
        "Pdf_5: the submission has no Python file and no notebook, but homework.pdf",
        "Deep_4: the submission has no Python file and no notebook, but hw.zip/a.zip/b.zip",
        "named_15: the submission has no file with the name of an exercise, but homework.py",
        "submission_23: ch01_ranks.ipynb: cell 2 is graded, the last one for ch01.mean; cell 1 answers it too",
        "submission_24: ch01_ranks.ipynb: a notebook of format 3; open it in Jupyter and save it again",
        "submission_26: the submission is empty",
        "(submission_metadata.yml: no hand-in; left out)",
        "(Thumbs.db: of a system; left out)",
        "(__MACOSX: of a system; left out)",
    ):
        assert words in told


def test_of_exercises_to_which_nobody_handed_in_there_is_a_line(class_folder, capsys):
    manifest = class_folder / "course.toml"
    text = manifest.read_text()
    exercise = text[text.index("[[chapter.exercise]]") :]
    for name in ("sum", "max", "min"):
        manifest.write_text(text := text + exercise.replace("ch01.mean", f"ch01.{name}"))
        check = class_folder / "dtlearn" / "checks" / "ch01_ranks"
        (check / f"{name}.py").write_text((check / "mean.py").read_text())
    (class_folder / "in" / "bad.zip").write_bytes(b"no zip")
    assert main(["grade-class", "in", "--out", "out"]) == 3
    printed = capsys.readouterr().out
    assert printed.count("##") and printed.count("below 25 %") == 1
    assert "No answer was read to 3 exercises: ch01.sum, ch01.max, ch01.min" in printed


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


class Clock:
    """Takes the place of the class `datetime` where the command asks for the time."""

    @staticmethod
    def now(zone):
        return datetime(2026, 11, 21, tzinfo=zone)


def write_a_class_of_everything(folder):
    """Right, wrong, late, handed in again, alike, unreadable, left out for time, loose, strange, absent."""
    alike = "".join(f"    a{k} = x[{k}] + {k}\n    b{k} = (a{k}, {k} * a{k})\n" for k in range(12))
    answers = {"dan": "# left out", "fay@2026-11-19T00:00Z": WRONG, "fay@2026-11-20T12:00Z": RIGHT, "gus": RIGHT}
    answers |= {name: f"def mean(x):\n{alike}    return x\n# {name}\n" for name in ("hal", "ida")}
    for name, text in answers.items():
        (folder / "in" / name).mkdir()
        (folder / "in" / name / "mean.py").write_text(text)
    (folder / "in" / "jim.zip").write_bytes(b"no zip")
    (folder / "in" / "kit_ch01.mean.py").write_text(RIGHT)
    (folder / "in" / "notes.txt").write_text("x")
    os.utime(folder / "in" / "ann", (4e9, 4e9))
    names = {"ann": "a1", "bob": "b2", "=eve": "e3", "gus": "a1", "zoe": "z4", "fay": "f5", "dan": "d6"}
    table = "".join(f"{name},{who}\n" for name, who in names.items())
    (folder / "students.csv").write_text(f"submission,student_id\n{table}")
    (folder / "rules.toml").write_text(
        'resubmissions = "best"\n[due]\nch01 = 2026-11-20T00:00:00Z\n[late]\nper_day = 0.25\n'
    )


def verdict_by_text(plan, exercise, answer, graders):
    """The same verdict on a text wherever it is graded; the real one differs in seconds and bytes."""
    passed, left_out = "all_reduce" in answer.source and "world_size" in answer.source, "left out" in answer.source
    state = "skipped" if left_out else "passed" if passed else "failed"
    code = "DTL-SKIPPED-TIME" if left_out else "" if passed else "DTL-VALUE"
    result = Result("one case", 2, state, code, f"{len(answer.source)} letters, {plan.seed(exercise) % 97}")
    return Verdict(exercise.id, exercise.title, state, 4.0 * passed, 4.0, results=(result,), seconds=1.25, memory=1)


def tree(folder):
    """All files below a folder, with their bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SAME = ["--students", "students.csv", "--rules", "rules.toml"]


@pytest.mark.slow
@pytest.mark.parametrize("of", [3, 20])  # of some of 20 nobody is
def test_a_class_in_parts_leaves_what_one_in_one_piece_leaves(class_folder, capsys, monkeypatch, of):
    """Byte for byte, and with the same exit status."""
    write_a_class_of_everything(class_folder)
    monkeypatch.setattr(batch, "_grade", verdict_by_text)
    monkeypatch.setattr(grade_class, "datetime", Clock)
    secret = [*SAME, "--secret", "secret"]
    assert main(["grade-class", "in", *secret, "--out", "whole"]) == 3
    states = [
        main(["grade-class", "in", *secret, "--part", f"{k}/{of}", "--out", f"parts/{k}"]) for k in range(1, of + 1)
    ]
    assert sorted(set(states)) == [0, 3] and states.count(3) == 1  # dan's part has something to grade again
    assert "not graded, or not whole: dan; the same command grades them again" in capsys.readouterr().out
    monkeypatch.setattr(batch, "_grade", lambda *a: pytest.fail("graded again"))
    assert main(["grade-class", "in", *SAME, "--merge", *(f"parts/{k}" for k in range(of, 0, -1)), "--out", "out"]) == 3
    whole, merged = tree(class_folder / "whole"), tree(class_folder / "out")
    assert (
        set(whole) == set(merged) > {"nbgrader.csv", "canvas.csv", "lti.jsonl", "similarity.csv", "ann/feedback.html"}
    )
    assert not [name for name in whole if whole[name] != merged[name]]
    assert b'"hal","ida"' in merged["similarity.csv"] and b"exit status 3): jim" in merged["summary.txt"]


def test_a_merged_class_goes_on_as_one_piece(class_folder, capsys, monkeypatch):
    """What comes late is graded by the command without parts, and nothing else is."""
    monkeypatch.setattr(batch, "_grade", verdict_by_text)
    for k in (1, 2):
        assert main(["grade-class", "in", "--secret", "s", "--part", f"{k}/2", "--out", f"p{k}"]) == 0
    assert main(["grade-class", "in", "--merge", "p1", "p2", "--out", "out"]) == 0
    (class_folder / "in" / "zoe").mkdir()
    (class_folder / "in" / "zoe" / "mean.py").write_text(RIGHT + "# zoe")
    graded = []
    monkeypatch.setattr(batch, "_grade", lambda *a: graded.append(a[2].source) or verdict_by_text(*a))
    assert main(["grade-class", "in", "--secret", "s", "--out", "out"]) == 0
    assert graded == [RIGHT + "# zoe"]


def test_an_interrupted_part_cannot_be_merged(class_folder, capsys, monkeypatch):
    part = ["grade-class", "in", "--secret", "s", "--part", "1/1", "--out", "p"]
    monkeypatch.setattr(batch, "_grade", verdict_by_text)
    assert main(part) == 0
    with monkeypatch.context() as patch:
        patch.setattr(batch, "grade_class", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(part) == 130
    assert main(["grade-class", "in", "--merge", "p", "--out", "out"]) == 2
    assert "p holds no part of a class that was graded to its end" in capsys.readouterr().err
    assert not (class_folder / "out").exists()
    assert main(part) == 0
    assert main(["grade-class", "in", "--merge", "p", "--out", "out"]) == 0


NO_CLASS = [
    (["--part", "1/2"], "--part needs --secret FILE"),
    (["--part", "0/2"], "a part is K/N, the K-th of N parts"),
    (["--part", "3/2"], "a part is K/N, the K-th of N parts"),
    (["--part", "2"], "a part is K/N, the K-th of N parts"),
    (["--part", "1/2", "--merge", "p1"], "not allowed with argument"),
    (["--merge", "p1", "--hidden", "h"], "leave out --hidden"),
    (["--merge", "p1", "--only-failed"], "leave out --only-failed"),
    (["--merge", "p1", "--out", "p1"], "p1 is one of the parts"),
    (["--merge", "p1"], "these are missing: 2"),
    (["--merge", "p1", "p1"], "part 1 is there more than once"),
    (["--merge", "p1", "other"], "The secret: "),
    (["--merge", "p1", "nowhere"], "nowhere holds no part"),
    (["--merge", "p1", "p2", "--students", "students.csv"], "other hand-ins than the folder and the table"),
]


def test_parts_that_are_no_class_are_usage_errors(class_folder, capsys, monkeypatch):
    monkeypatch.setattr(batch, "_grade", verdict_by_text)
    for secret, part, out in (("s", "1/2", "p1"), ("s", "2/2", "p2"), ("t", "2/2", "other")):
        assert main(["grade-class", "in", "--secret", secret, "--part", part, "--out", out]) == 0
    (class_folder / "students.csv").write_text("submission,student_id\nann,z\nbob,y\n=eve,x\n")
    for arguments, words in NO_CLASS:
        capsys.readouterr()
        try:
            code = main(["grade-class", "in", "--out", "out", *arguments])
        except SystemExit as end:
            code = end.code
        assert (code, words in capsys.readouterr().err) == (2, True), arguments
    assert not (class_folder / "out").exists()
