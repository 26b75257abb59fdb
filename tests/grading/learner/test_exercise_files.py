import sys

import pytest

from dtlearn.course import load_course
from dtlearn.grading.check import Check
from dtlearn.grading.learner.exercise_files import files_of, find_check
from tests.grading.small_course import ID, small_course


@pytest.fixture
def small(tmp_path):
    return small_course(tmp_path / "kurs ü")


def test_the_parts_of_an_exercise_have_their_places(small):
    files = files_of(small, small.exercise(ID))
    assert files.slug == "ch01_small"
    found = [p.relative_to(small.root).as_posix() for p in (files.answer, files.stub, files.solution, files.wrong)]
    assert found == [
        "work/ch01_small/average.py",
        "exercises/ch01_small/average.py",
        "solutions/ch01_small/average.py",
        "tests/course/wrong/ch01_small/average",
    ]


def test_the_checks_of_the_course_are_found():
    course = load_course()
    exercise = course.chapters[0].exercises[0]
    assert isinstance(find_check(course, exercise), Check)


def test_the_rules_of_a_chapter_hold_for_a_check_that_uses_nothing_of_its_package(monkeypatch):
    course = load_course()
    monkeypatch.delitem(sys.modules, "dtlearn.checks.ch03_data_parallel", raising=False)  # as in a new process
    (rule,) = find_check(course, course.exercise("ch03.weighted_mean")).reads
    assert rule("from dtlearn.data_parallel import weighted_mean").code == "DTL-RULE-NAME"


def test_a_check_in_another_folder_can_show_its_source(small, tmp_path):
    exercise = small.exercise(ID)
    assert "return answer(x)" in find_check(small, exercise).driver()
    hidden = tmp_path / "hidden" / "ch01_small"
    hidden.mkdir(parents=True)
    text = (small.root / "dtlearn/checks/ch01_small/average.py").read_text()
    (hidden / "average.py").write_text(text.replace("return answer(x)", "return answer(2 * x)"))
    assert "return answer(2 * x)" in find_check(small, exercise, tmp_path / "hidden").driver()


def test_what_is_missing_or_no_check_is_said(small, tmp_path):
    exercise = small.exercise(ID)
    with pytest.raises(ValueError, match="has no check"):
        find_check(small, exercise, tmp_path)
    check = small.root / "dtlearn/checks/ch01_small/average.py"
    check.write_text("CHECK = 3\n")
    with pytest.raises(ValueError, match="defines no CHECK"):
        find_check(small, exercise)


def test_a_check_that_cannot_be_imported_is_not_called_missing(small):
    check = small.root / "dtlearn/checks/ch01_small/average.py"
    check.write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        find_check(small, small.exercise(ID))
