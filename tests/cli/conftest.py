"""For the commands about exercises: a small course that they find in place of this one."""

import pytest

from tests.grading.small_course import answer_file, small_course


@pytest.fixture
def course(tmp_path, monkeypatch):
    course = small_course(tmp_path / "kurs ü")
    for module in ("one_exercise", "progress", "grade", "watch"):
        monkeypatch.setattr(f"dtlearn.cli.exercises.{module}.load_course", lambda: course)
    return course


@pytest.fixture
def file(course):
    """Where the learner's answer lies."""
    return answer_file(course)
