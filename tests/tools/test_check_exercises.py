import pytest
from check_exercises import Expectation, expectation, problems

from dtlearn.course import load_course
from dtlearn.grading.learner.exercise_files import files_of
from tests.grading.small_course import ID, small_course


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path / "kurs ü")


def test_a_whole_course_has_no_problems(course):
    assert problems(course) == []


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("solutions/ch01_small/average.py", "ch01.average: solutions/ch01_small/average.py is missing"),
        ("exercises/ch01_small/average.py", "is missing; run make exercises"),
        ("dtlearn/checks/ch01_small/average.py", "ch01.average has no check"),
        ("tests/course/wrong/ch01_small/average/endless.py", "2 wrong answers in tests/course/wrong"),
    ],
)
def test_what_is_missing_is_named(course, path, says):
    (course.root / path).unlink()
    (found,) = problems(course)
    assert says in found


@pytest.mark.parametrize(
    "path",
    [
        "solutions/ch01_small/old.py",
        "exercises/ch01_old/average.py",
        "dtlearn/checks/ch01_small/old.py",
        "tests/course/wrong/ch01_small/old/a.py",
    ],
)
def test_a_file_of_no_exercise_is_named(course, path):
    (course.root / path).parent.mkdir(parents=True, exist_ok=True)
    (course.root / path).write_text("")
    (found,) = problems(course)
    assert found.startswith(f"{path}: belongs to no exercise")


def test_caches_are_no_files_of_the_course(course):
    cache = course.root / "solutions" / "ch01_small" / "__pycache__" / "a.pyc"
    cache.parent.mkdir()
    cache.write_text("")
    assert problems(course) == []


def test_bad_contents_are_named(course):
    files = files_of(course, course.exercise(ID))
    files.solution.write_text('"""T."""\ndef average():\n    pass\n')
    (files.wrong / "endless.py").write_text("x = 1\n")
    solution, wrong = problems(course)
    assert solution.startswith("solutions/ch01_small/average.py:1: has no '# BEGIN SOLUTION")
    assert wrong.startswith("tests/course/wrong/ch01_small/average/endless.py:1: must begin with")


def test_a_course_without_exercises_is_whole(tmp_path):
    (tmp_path / "course.toml").write_text("chapter = []\n")
    assert problems(load_course(tmp_path)) == []


def test_expectations():
    text = '# expect: DTL-VALUE\n# says: a\n# says: b: c\n# rank: 1\n"""T."""\n# says: too late\n'
    assert expectation(text, "w.py") == Expectation("DTL-VALUE", ("a", "b: c"), 1)
    for wrong in ("", "# expect: oops\n", "# expect: DTL-A\n# expect: DTL-B\n", "# expect: DTL-A\n# rank: one\n"):
        with pytest.raises(ValueError, match=r"w\.py:1:"):
            expectation(wrong, "w.py")
