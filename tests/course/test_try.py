"""What `dtlearn try` shows of every exercise: what comes in and goes out, on a screen."""

import pytest

from dtlearn.course import load_course
from dtlearn.grading.learner.exercise_files import files_of, find_check
from dtlearn.grading.learner.try_answer import try_answer

COURSE = load_course()
EXERCISES = [exercise for chapter in COURSE.chapters for exercise in chapter.exercises]
LINES, COLUMNS = 30, 110


@pytest.mark.every_answer
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_a_try_of_the_solution_fits_on_a_screen(exercise):
    trial = try_answer(COURSE, exercise, files_of(COURSE, exercise).solution.read_text("utf-8"))
    assert not trial.error and trial.lines
    lines = [line for of_rank in trial.lines.values() for line in of_rank]
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
    assert any(line.startswith("returned  ") and "nothing" not in line for line in lines)
    if find_check(COURSE, exercise).example:
        assert "with the task's example" in trial.heading
