import pytest

from dtlearn import cli
from dtlearn.grading.learner import attempts
from dtlearn.grading.verdict import Verdict
from tests.grading.small_course import ID, RIGHT, WRONG


@pytest.fixture
def attempted(course, file):
    folder = attempts.attempts_folder(course.root, ID)
    file.write_text(WRONG)
    number, _ = attempts.begin(folder, WRONG)
    attempts.finish(folder, Verdict(ID, "T", "failed", 0, 4, attempt=number))


def test_not_before_an_attempt(course, capsys):
    folder = attempts.attempts_folder(course.root, ID)
    attempts.begin(folder, "never graded")
    number, _ = attempts.begin(folder, "not attempted")
    attempts.finish(folder, Verdict(ID, "T", "not-attempted", 0, 4, attempt=number))
    assert cli.main(["solution", ID]) == cli.WRONG
    said = capsys.readouterr().out
    assert "was not attempted yet" in said and f"dtlearn grade {ID}" in said and "all_reduce" not in said


def test_after_an_attempt_it_is_shown_without_its_marks(course, attempted, capsys):
    assert cli.main(["solution", ID]) == cli.OK
    assert capsys.readouterr().out == f"# solutions/ch01_small/average.py\n{RIGHT}"


def test_what_differs(course, attempted, file, capsys):
    assert cli.main(["solution", ID, "--diff"]) == cli.OK
    said = capsys.readouterr().out
    assert "-    return total\n+    return total / dist.get_world_size()\n" in said
    file.write_text(RIGHT)
    cli.main(["solution", ID, "--diff"])
    assert capsys.readouterr().out == "no difference\n"


def test_a_course_without_solutions_says_so(course, attempted, capsys):
    (course.root / "solutions/ch01_small/average.py").unlink()
    assert cli.main(["solution", ID]) == cli.USAGE
    assert "does not exist" in capsys.readouterr().err
