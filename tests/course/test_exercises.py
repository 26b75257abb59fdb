"""Every exercise of the course: its stub is not attempted, its solution passes, its wrong answers are named.

`make test` takes one of the wrong answers of each exercise, `make test-all` every one.
"""

from collections import Counter
from pathlib import Path

import pytest
from check_exercises import Expectation, expectation, wrong_answers

from dtlearn.course import Exercise, load_course
from dtlearn.grading.formula import evaluate
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import files_of, find_check
from dtlearn.grading.learner.stubs import stub_of
from dtlearn.grading.verdict import Result, Verdict

COURSE = load_course()
EXERCISES = [exercise for chapter in COURSE.chapters for exercise in chapter.exercises]


def typical(answers: list[tuple[str, str]]) -> str:
    """The name of one of these (name, expected code), of the most frequent kind of fault: VALUE of DTL-VALUE-FACTOR."""
    kinds = Counter(code.split("-")[1] for _, code in answers)
    return max(sorted(answers), key=lambda answer: kinds[answer[1].split("-")[1]])[0]


def all_wrong_answers():
    """Each exercise's wrong answers, as parameters of a test; all but the typical one are marked `every_answer`."""
    for exercise in EXERCISES:
        paths = wrong_answers(files_of(COURSE, exercise))
        codes = [(path.stem, expectation(path.read_text("utf-8"), path.name).code) for path in paths]
        for path in paths:
            marks = [] if path.stem == typical(codes) else [pytest.mark.every_answer]
            yield pytest.param(exercise, path, id=f"{exercise.id}-{path.stem}", marks=marks)


each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


def judged(exercise: Exercise, source: str, seed: int = 1, all_cases: bool = True) -> Verdict:
    """The verdict on a text; without `all_cases` what comes after the first fault that names a mistake is skipped."""
    faults: list[Result] = []

    def progress(result: Result, done: int, total: int) -> None:
        faults.extend([result] if result.state != "passed" and result.is_specific else [])

    files = files_of(COURSE, exercise)
    answer = Answer(source, files.stub.relative_to(COURSE.root).as_posix(), exercise.name)
    stop = lambda: bool(faults) and not all_cases  # noqa: E731
    return grade(exercise, find_check(COURSE, exercise), answer, seed=seed, progress=progress, stop=stop)


@each_exercise
def test_the_stub_is_not_attempted(exercise):
    files = files_of(COURSE, exercise)
    stub = stub_of(files.solution.read_text("utf-8"), exercise.id, files.solution.name)
    verdict = judged(exercise, stub)
    assert (verdict.state, verdict.code, verdict.score) == ("not-attempted", "DTL-STUB", 0), verdict


@each_exercise
def test_the_solution_passes(exercise):
    verdict = judged(exercise, files_of(COURSE, exercise).solution.read_text("utf-8"))
    assert verdict.passed and verdict.score == exercise.points, verdict.first_fault
    assert {r.world_size for r in verdict.results} == set(exercise.world_sizes)
    tiers = {tier for limits in exercise.budget.values() for tier in limits}
    assert verdict.tier == ("optimal" if "optimal" in tiers else "good" if tiers else "correct"), verdict.notes


@pytest.mark.parametrize(("exercise", "path"), list(all_wrong_answers()))
def test_a_wrong_answer_is_named(exercise: Exercise, path: Path):
    source = path.read_text("utf-8")
    wanted = expectation(source, path.name)
    # A ladder names by the case that is the first in its table, which need not be the first that is run.
    whole = wanted.code == "DTL-WS" or find_check(COURSE, exercise).is_ladder
    verdict = judged(exercise, source, all_cases=whole)
    found = verdict.first_fault
    assert found is not None and verdict.score < exercise.points, f"{path.stem} passes"
    said = f"{found.code}: {found.headline}  [{found.case}, {found.world_size} ranks]"
    assert found.code == wanted.code, said
    for words in wanted.says:
        assert words in found.headline, said
    assert wanted.rank in (None, found.rank), said


@each_exercise
def test_no_two_wrong_answers_are_described_alike(exercise):
    texts = [path.read_text("utf-8") for path in wrong_answers(files_of(COURSE, exercise))]
    described: list[Expectation] = [expectation(text, exercise.id) for text in texts]
    assert all(one.says for one in described), "each '# says:' a part of its headline"
    assert len(described) == len(set(described))


@each_exercise
def test_budgets_can_be_computed(exercise):
    for limits in exercise.budget.values():
        for limit in limits.values():
            assert all(evaluate(str(limit), N=size, n=1000) >= 0 for size in exercise.world_sizes)


def test_the_typical_answer_has_the_most_frequent_fault():
    assert typical([("a", "DTL-RAISED"), ("c", "DTL-VALUE-X"), ("b", "DTL-VALUE-Y")]) == "b"
    assert typical([("b", "DTL-VALUE-X"), ("a", "DTL-COLL-SKIP")]) == "a"


def test_of_each_exercise_a_wrong_answer_is_always_graded():
    always = [param.values[0].id for param in all_wrong_answers() if not param.marks]
    assert sorted(always) == sorted(exercise.id for exercise in EXERCISES)
