"""Which run of a grading is drawn, on real ranks: the first fault's; after a pass the largest, beside the model's."""

import pytest

from dtlearn.grading.judging.grade import grade
from dtlearn.grading.judging.own_runs import OwnRuns
from dtlearn.grading.judging.run_case import Answer
from dtlearn.grading.learner.exercise_files import find_check
from tests.grading.small_course import ID, RIGHT, WRONG, small_course

# As right as RIGHT, with one call more.
TALKATIVE = RIGHT.replace("dist.all_reduce(total)", "dist.barrier()\n    dist.all_reduce(total)")


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path)


def run_of(course, source, model=RIGHT):
    exercise, runs = course.exercise(ID), OwnRuns()
    check = find_check(course, exercise)
    verdict = grade(exercise, check, Answer(source, "average.py", "average"), seed=4, seen=runs.take)
    return verdict, runs.chosen(verdict, check, model and Answer(model, "model.py", "average"))


def test_after_a_pass_the_largest_run_stands_beside_the_model_answers(course):
    verdict, run = run_of(course, TALKATIVE)
    assert verdict.passed and (run.case, run.world_size, run.code) == ("small", 2, "")
    assert [e.op for e in run.record.select(rank=0)] == ["barrier", "all_reduce"]
    assert [e.op for e in run.model.select(rank=0)] == ["all_reduce"]
    assert {e.file for e in run.record} == {"average.py"} and {e.file for e in run.model} == {"model.py"}


def test_after_a_fault_it_is_the_run_of_the_fault_and_no_model_answer_is_shown(course):
    verdict, run = run_of(course, WRONG)
    assert (verdict.code, run.code) == ("DTL-VALUE-FACTOR", "DTL-VALUE-FACTOR")
    assert run.world_size == verdict.first_fault.world_size == 2
    assert run.model is None


def test_without_a_solution_nothing_is_compared(course):
    assert run_of(course, RIGHT, model=None)[1].model is None


def test_a_model_answer_that_fails_is_not_compared(course):
    verdict, run = run_of(course, RIGHT, model=RIGHT.replace("x.clone()", "1 / 0"))
    assert verdict.passed and run.record.events and run.model is None


def test_what_says_nothing_is_not_drawn(course):
    assert run_of(course, RIGHT.replace("dist.all_reduce(total)", "pass"))[1] is None
