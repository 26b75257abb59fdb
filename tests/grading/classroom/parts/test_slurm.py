"""The job array of docs/instructor.md grades a class on a real Slurm, as one machine does."""

import glob

import pytest

from dtlearn.cli import main
from tests.guides import ROOT, blocks, commands
from tests.real_slurm import slurm  # noqa: F401 - a fixture

GUIDE = (ROOT / "docs" / "instructor.md").read_text("utf-8")
SCRIPT = next(block for block in blocks(GUIDE, "bash") if "#SBATCH" in block)
MERGE = next(words for words in commands(GUIDE) if "--merge" in words)
EXERCISE = "ch01.who_am_i"
# The other files differ between two gradings, but only in their times.
SAME_BYTES = ("nbgrader.csv", "canvas.csv", "similarity.csv", "summary.txt", "summary.html")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def class_folder(tmp_path, monkeypatch):
    """Right and wrong answers to an exercise of the course, and what cannot be read."""
    solution = ROOT / "solutions" / "ch01_ranks" / "who_am_i.py"
    wrong = sorted((ROOT / "tests" / "course" / "wrong" / "ch01_ranks" / "who_am_i").glob("*.py"))[:2]
    for student, path in zip(("ann", "bob", "cid", "dan"), (solution, *wrong, solution), strict=True):
        (tmp_path / "submissions" / student).mkdir(parents=True)
        (tmp_path / "submissions" / student / "who_am_i.py").write_text(path.read_text() + f"# {student}\n")
    (tmp_path / "submissions" / "eve.zip").write_bytes(b"no zip")
    (tmp_path / "students.csv").write_text("submission,student_id\nann,a1\nbob,b2\ncid,c3\ndan,d4\neve,e5\nfay,f6\n")
    (tmp_path / "rules.toml").write_text("[due]\nch01 = 2026-11-20T00:00:00Z\n[late]\nper_day = 0.1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_guides_job_array_grades_a_class_as_one_piece(slurm, class_folder, capsys):  # noqa: F811
    script = SCRIPT
    for old, new in (("ch01 ", f"{EXERCISE} "), ("1-20", "1-2"), ("_ID/20", "_ID/2"), ("-task=16", "-task=2")):
        assert script.count(old) == 1, old  # in two parts, with one exercise
        script = script.replace(old, new)
    code, said = slurm.batch(script, class_folder)
    assert code == 0, said
    assert "part 1 of 2: 3 submissions" in said and "part 2 of 2: 2 submissions" in said
    shown = {"ch01": [EXERCISE], "parts/*": glob.glob("parts/*")}
    merge = [new for word in MERGE for new in shown.get(word, [word])]
    assert len(merge) == len(MERGE) + 1 and main(merge) == 3  # for eve's
    whole = ["--students", "students.csv", "--rules", "rules.toml", "--secret", "class.secret", "--out", "whole"]
    assert main(["grade-class", "submissions", "--exercises", EXERCISE, *whole]) == 3
    for name in SAME_BYTES:
        assert (class_folder / "results" / name).read_bytes() == (class_folder / "whole" / name).read_bytes(), name
    rows = (class_folder / "results" / "nbgrader.csv").read_text().splitlines()
    assert len(rows) == 7 and len({row.split(",")[-2] for row in rows[1:]}) > 1, rows
