"""`dtlearn try`, `hint`, `solution`, `reset`."""

import pytest

from dtlearn import cli
from dtlearn.grading.learner import attempts
from dtlearn.grading.verdict import Verdict
from tests.grading.small_course import ID, RIGHT, STUB, WRONG


def hint(capsys):
    assert cli.main(["hint", ID]) == 0
    return capsys.readouterr()


def test_one_more_hint_each_time(course, capsys):
    assert hint(capsys).out == "1 of 3: Sum first.\n"
    assert hint(capsys).out == "1 of 3: Sum first.\n2 of 3: Then divide.\n"
    third = hint(capsys).out
    assert third.endswith("3 of 3: By the world size.\n")
    last = hint(capsys).out
    assert last.startswith(third) and "These are all." in last and f"dtlearn solution {ID}" in last


def test_hints_work_where_nothing_can_be_written(course, capsys):
    (course.root / ".dtlearn").write_text("in the way")
    said = hint(capsys)
    assert said.out == "1 of 3: Sum first.\n" and said.err.startswith("This is not remembered")


def test_a_hint_on_an_unknown_exercise_is_wrong_usage(course, capsys):
    assert cli.main(["hint", "ch01.none"]) == cli.USAGE
    assert "there is no exercise 'ch01.none'" in capsys.readouterr().err


def test_what_each_rank_returns_is_printed(course, file, capsys):
    file.write_text(RIGHT)
    assert cli.main(["try", ID]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{ID} on 2 ranks")
    assert [line[:13] for line in said[1:]] == ["[0] given    ", "[0] returned ", "[1] given    ", "[1] returned "]


def test_what_fails_is_no_success(course, file, capsys):
    file.write_text(WRONG.replace("return total", "return 1 / 0"))
    assert cli.main(["try", ID]) == cli.WRONG
    assert "ZeroDivisionError" in capsys.readouterr().out
    file.write_text(STUB)
    assert cli.main(["try", ID]) == cli.WRONG
    assert "untouched stub" in capsys.readouterr().out
    assert cli.main(["try", "ch01.none"]) == cli.USAGE


def test_the_stub_comes_back_and_work_is_kept(course, file, capsys):
    file.write_bytes(RIGHT.encode() + b"# \xff\n")
    assert cli.main(["reset", ID]) == 0
    said = capsys.readouterr().out
    assert "is the stub again; what it held is in .dtlearn/attempts/ch01.average/copy-0001.py" in said
    assert file.read_text() == STUB
    kept = course.root / ".dtlearn/attempts/ch01.average/copy-0001.py"
    assert kept.read_bytes() == RIGHT.encode() + b"# \xff\n"
    cli.main(["reset", ID])
    assert "is the stub already" in capsys.readouterr().out


def test_a_missing_file_comes_back(course, file, capsys):
    file.unlink()
    file.parent.rmdir()
    assert cli.main(["reset", ID]) == 0
    assert file.read_text() == STUB
    assert "is the stub again\n" in capsys.readouterr().out


def test_what_cannot_be_kept_is_not_reset(course, file, capsys):
    file.write_text(RIGHT)
    (course.root / ".dtlearn").write_text("in the way")
    assert cli.main(["reset", ID]) == cli.WRONG
    assert "average.py was not reset" in capsys.readouterr().err
    assert file.read_text() == RIGHT


def test_without_a_solution_there_is_no_stub(course, file, capsys):
    (course.root / "solutions/ch01_small/average.py").unlink()
    assert cli.main(["reset", ID]) == cli.USAGE
    assert "no solution here" in capsys.readouterr().err


@pytest.fixture
def attempted(course, file):
    folder = attempts.attempts_folder(course.root, ID)
    file.write_text(WRONG)
    number, _ = attempts.begin(folder, WRONG)
    attempts.finish(folder, Verdict(ID, "T", "failed", 0, 4, attempt=number))


def test_no_solution_before_an_attempt(course, capsys):
    folder = attempts.attempts_folder(course.root, ID)
    attempts.begin(folder, "never graded")
    number, _ = attempts.begin(folder, "not attempted")
    attempts.finish(folder, Verdict(ID, "T", "not-attempted", 0, 4, attempt=number))
    assert cli.main(["solution", ID]) == cli.WRONG
    said = capsys.readouterr().out
    assert "was not attempted yet" in said and f"dtlearn grade {ID}" in said and "all_reduce" not in said


def test_after_an_attempt_the_solution_is_shown_without_its_marks(course, attempted, capsys):
    assert cli.main(["solution", ID]) == 0
    assert capsys.readouterr().out == f"# solutions/ch01_small/average.py\n{RIGHT}"


def test_what_differs_from_the_solution(course, attempted, file, capsys):
    assert cli.main(["solution", ID, "--diff"]) == 0
    said = capsys.readouterr().out
    assert "-    return total\n+    return total / dist.get_world_size()\n" in said
    file.write_text(RIGHT)
    cli.main(["solution", ID, "--diff"])
    assert capsys.readouterr().out == "no difference\n"


def test_a_course_without_solutions_says_so(course, attempted, capsys):
    (course.root / "solutions/ch01_small/average.py").unlink()
    assert cli.main(["solution", ID]) == cli.USAGE
    assert "does not exist" in capsys.readouterr().err
