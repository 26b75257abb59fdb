"""What the hand-ins of a class can see is enough for the solution of every exercise."""

import pytest

from dtlearn.course import load_course
from dtlearn.grading.classroom.batch import shut_in
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import files_of, find_check
from dtlearn.runtime.machine.isolation import probe

COURSE = load_course()
FEW = {chapter.exercises[-1].id for chapter in COURSE.chapters if chapter.exercises} | {"ch08.find_the_leak"}
EXERCISES = [
    pytest.param(e, id=e.id, marks=[] if e.id in FEW else pytest.mark.every_answer)
    for chapter in COURSE.chapters
    for e in chapter.exercises
]


@pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_solution_passes_as_a_hand_in(exercise):
    answer = Answer(files_of(COURSE, exercise).solution.read_text("utf-8"), "answer.py", exercise.name)
    sizes = [next((size for size in exercise.world_sizes if size > 1), 1)]
    check = find_check(COURSE, exercise)
    verdict = grade(exercise, check, answer, seed=1, isolation=shut_in(COURSE, 2), world_sizes=sizes)
    assert verdict.passed, verdict.first_fault
