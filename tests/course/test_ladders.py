"""The ladders of the checks: every edit has a name of its own, every case shows something, and no right answer fails.

Edits and cases: `make test-ladders`. Right answers at 20 seeds: `make test-all`.
"""

import functools
from pathlib import Path

import pytest

from dtlearn.course import Exercise, load_course
from dtlearn.grading.check import Case, Check
from dtlearn.grading.judging.compare import compare
from dtlearn.grading.judging.judge import judge
from dtlearn.grading.judging.judge_cases import judge_case
from dtlearn.grading.judging.ladder import values_of_edits
from dtlearn.grading.judging.run_case import Answer, CaseRanks, by_chance
from dtlearn.grading.learner.exercise_files import files_of, find_check
from tests.course.test_exercises import judged
from tests.course.test_right_answers import FOLDER

COURSE = load_course()
EXERCISES = [exercise for chapter in COURSE.chapters for exercise in chapter.exercises]
LADDERS = [exercise for exercise in EXERCISES if find_check(COURSE, exercise).is_ladder]
SEEDS = range(100, 120)
pytestmark = pytest.mark.timeout(600)  # of all edits, cases and seeds of an exercise
each_ladder = pytest.mark.parametrize("exercise", LADDERS, ids=lambda exercise: exercise.id)


def all_cases(exercise: Exercise, check: Check, seed: int = 1) -> list[Case]:
    """In the order in which they name a mistake."""
    cases = [case for size in exercise.world_sizes for case in check.all_cases(size, seed)]
    order = list(check.cases)
    return sorted(cases, key=lambda case: (order.index(case.name), case.world_size))


@functools.cache
def wrong_in(exercise_id: str) -> dict[int, list[Case]]:
    """Of each edit, by its number, the cases in which its values are wrong, the first one first."""
    exercise = COURSE.exercise(exercise_id)
    check, wrong = find_check(COURSE, exercise), dict[int, list[Case]]()
    cases = all_cases(exercise, check)
    for size in exercise.world_sizes:
        of_size = [case for case in cases if case.world_size == size]
        runs = [(case, check.inputs(case)) for case in of_size]
        values = values_of_edits(check, runs)
        assert len(values) == len(check.edits), f"with {size} ranks an edit raises or hangs: it can name nothing"
        for number, by_case in values.items():
            for (case, given), got in zip(runs, by_case, strict=True):
                if compare(check, case, given, check.expected(case, given), got):
                    wrong.setdefault(number, []).append(case)
    return {number: [case for case in cases if case in of_edit] for number, of_edit in wrong.items()}


@each_ladder
@pytest.mark.whole_ladder
def test_every_edit_is_wrong_and_named_by_itself(exercise):
    check = find_check(COURSE, exercise)
    for number, edit in enumerate(check.edits):
        assert wrong_in(exercise.id).get(number), f"{edit.says!r} is right in every case"
    solution = check.solution.read_text("utf-8")
    for edit in check.edits:
        verdict = judged(exercise, edit.applied_to(solution))
        assert verdict.first_fault is not None, f"{edit.says!r} passes"
        assert verdict.first_fault.headline == edit.says, "two edits that cannot be told apart: make them one"


@each_ladder
@pytest.mark.whole_ladder
def test_every_case_is_the_first_to_fail_for_something(exercise):
    """A case that never fails first checks nothing, and hides that it does not."""
    check = find_check(COURSE, exercise)
    first = {cases[0].name for cases in wrong_in(exercise.id).values() if cases}
    for path in sorted(files_of(COURSE, exercise).wrong.glob("*.py")):
        if set(check.cases) <= first:
            break
        results = judged(exercise, path.read_text("utf-8")).results
        failed = {r.case for r in results if r.state not in ("passed", "skipped")}
        first |= set([name for name in check.cases if name in failed][:1])
    assert set(check.cases) <= first, "cases that no edit and no wrong answer fails first"


@each_ladder
def test_edits_apply_to_the_solution_of_today(exercise):
    check = find_check(COURSE, exercise)
    for edit in check.edits:
        compile(edit.applied_to(check.solution.read_text("utf-8")), exercise.id, "exec")


def right_answers(exercise: Exercise) -> list[Path]:
    files = files_of(COURSE, exercise)
    return [files.solution, *sorted((FOLDER / files.slug / exercise.name).glob("*.py"))]


@pytest.mark.every_answer
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_right_answers_pass_at_every_seed(exercise):
    check = find_check(COURSE, exercise)
    for path in right_answers(exercise):
        answer = Answer(path.read_text("utf-8"), path.name, exercise.name)
        for at, size in enumerate(exercise.world_sizes):
            # The solution at each size with every seed; the others share the seeds among the sizes.
            step = 1 if path == files_of(COURSE, exercise).solution else len(exercise.world_sizes)
            cases = [case for seed in SEEDS[at % step :: step] for case in check.all_cases(size, seed)]
            with CaseRanks() as ranks:
                if by_chance(check):
                    results = [judge_case(exercise.id, check, case, answer, ranks).result for case in cases]
                else:
                    given = [check.inputs(case) for case in cases]
                    evidence = ranks.run_all(check, [(c, g, answer) for c, g in zip(cases, given, strict=True)], 60.0)
                    assert evidence, f"{path.name} raised or hung with {size} ranks"
                    results = [
                        judge(check, case, own, one, answer, exercise.id)
                        for case, own, one in zip(cases, given, evidence, strict=True)
                    ]
            for case, result in zip(cases, results, strict=True):
                assert result.state == "passed", f"{path.name}, seed {case.seed}: {result}"
