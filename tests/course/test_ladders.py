"""The ladders of the checks: every edit has a name of its own, every case shows something, and no right answer fails.

What runs all edits is `make test-ladders` (15 minutes); right answers at 20 seeds are of `make test-all`.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dtlearn.course import Exercise, load_course
from dtlearn.grading.check import Case, Check, Given
from dtlearn.grading.judging.compare import compare
from dtlearn.grading.judging.judge import judge
from dtlearn.grading.judging.judge_cases import judge_case
from dtlearn.grading.judging.ladder import CaseValues, named, values_of_edits
from dtlearn.grading.judging.run_case import Answer, CaseRanks, by_chance
from dtlearn.grading.learner.exercise_files import files_of, find_check
from dtlearn.grading.verdict import Result
from tests.course.test_exercises import judged
from tests.course.test_right_answers import FOLDER

COURSE = load_course()
EXERCISES = [exercise for chapter in COURSE.chapters for exercise in chapter.exercises]
LADDERS = [exercise for exercise in EXERCISES if find_check(COURSE, exercise).is_ladder]
Values = dict[int, list[list[Any]]]  # see `ladder.ValuesOfEdits`
SEEDS = range(100, 120)
pytestmark = pytest.mark.timeout(600)  # of all edits, cases and seeds of an exercise
each_ladder = pytest.mark.parametrize("exercise", LADDERS, ids=lambda exercise: exercise.id)


def all_cases(exercise: Exercise, check: Check, seed: int = 1) -> list[Case]:
    """In the order in which they name a mistake."""
    cases = [case for size in exercise.world_sizes for case in check.all_cases(size, seed)]
    order = list(check.cases)
    return sorted(cases, key=lambda case: (order.index(case.name), case.world_size))


class Ladder:
    """What all edits of a check return in all its cases, and which of that is wrong. Each edit runs once."""

    def __init__(self, exercise: Exercise) -> None:
        self.check, self.edits = find_check(COURSE, exercise), dict[int, Values]()
        self.runs = {size: list[tuple[Case, Given]]() for size in exercise.world_sizes}
        for case in all_cases(exercise, self.check):
            self.runs[case.world_size].append((case, self.check.inputs(case)))
        for size, runs in self.runs.items():
            self.edits[size] = values_of_edits(self.check, runs)
            assert len(self.edits[size]) == len(self.check.edits), f"with {size} ranks an edit raises or hangs"

    def of_edits(self, check: Check, runs: Sequence[tuple[Case, Given]]) -> Values:
        return self.edits[runs[0][0].world_size]

    def answered_by(self, number: int) -> list[CaseValues]:
        """What an answer that is this edit leads to."""
        values = list[CaseValues]()
        for size, runs in self.runs.items():
            for (case, given), got in zip(runs, self.edits[size][number], strict=True):
                is_wrong = compare(self.check, case, given, self.check.expected(case, given), got) is not None
                values.append(CaseValues(len(values), case, given, got, is_wrong))
        return values


ladder_of = functools.cache(lambda exercise_id: Ladder(COURSE.exercise(exercise_id)))


@each_ladder
@pytest.mark.whole_ladder
def test_every_edit_is_wrong_and_named_by_itself(exercise):
    check, ladder, faults = find_check(COURSE, exercise), ladder_of(exercise.id), []
    order = list(check.cases)
    for number, edit in enumerate(check.edits):
        values = ladder.answered_by(number)
        wrong = sorted((v for v in values if v.is_wrong), key=lambda v: (order.index(v.case.name), v.case.world_size))
        if not wrong:
            faults.append(f"{edit.says!r} is right in every case")
            continue
        results = [Result(v.case.name, v.case.world_size, "failed" if v.is_wrong else "passed") for v in values]
        name = named(check, values, results, ladder.of_edits)[wrong[0].at].headline
        if name != edit.says:  # two edits that cannot be told apart: make them one
            faults.append(f"{edit.says!r} is called {name!r}")
    assert not faults, "\n".join(faults)


@each_ladder
@pytest.mark.whole_ladder
def test_every_case_is_the_first_to_fail_for_something(exercise):
    """A case that never fails first checks nothing, and hides that it does not."""
    check, ladder, first = find_check(COURSE, exercise), ladder_of(exercise.id), set[str]()
    for number in range(len(check.edits)):
        wrong = {v.case.name for v in ladder.answered_by(number) if v.is_wrong}
        first |= set([name for name in check.cases if name in wrong][:1])
    for path in sorted(files_of(COURSE, exercise).wrong.glob("*.py")):
        if set(check.cases) <= first:
            break
        results = judged(exercise, path.read_text("utf-8")).results
        failed = {r.case for r in results if r.state not in ("passed", "skipped")}
        first |= set([name for name in check.cases if name in failed][:1])
    assert set(check.cases) <= first, f"no edit and no wrong answer fails first: {set(check.cases) - first}"


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
                    given, evidence = [check.inputs(case) for case in cases], []
                    todo = [(c, g, answer) for c, g in zip(cases, given, strict=True)]
                    at_once = check.edits_at_once or len(todo)  # what a task makes, such as groups, stays until it ends
                    for part in range(0, len(todo), at_once):
                        found = ranks.run_all(check, todo[part : part + at_once], 60.0)
                        assert found, f"{path.name} raised or hung with {size} ranks"
                        evidence += found
                    results = [
                        judge(check, case, own, one, answer, exercise.id)
                        for case, own, one in zip(cases, given, evidence, strict=True)
                    ]
            for case, result in zip(cases, results, strict=True):
                assert result.state == "passed", f"{path.name}, seed {case.seed}: {result}"
