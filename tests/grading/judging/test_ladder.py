"""Mistakes named by the first case that is wrong, and by edits of the solution, on real ranks."""

import dataclasses

import pytest
import torch

from dtlearn.grading.check import Check, Edit
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.judging.ladder import answers_of_edits, values_of_edits
from dtlearn.grading.judging.run_case import CaseRanks
from dtlearn.runtime.record.rank_file import Tampered

FILE = "exercises/ch01_ranks/mean.py"
SOLUTION = """\
import torch
import torch.distributed as dist


def mean(x, weight):
    total = torch.stack([(x * weight).sum(), weight.sum()])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()
"""
SUM, ROOT = "dist.all_reduce(total)", "(total[0] / total[1])"
OWN, SQUARED = "each rank has the mean of its own numbers", "the weights are squared"
EDITS = (Edit(OWN, {SUM: "pass"}), Edit(SQUARED, {"(x * weight).sum()": "(x * weight * weight).sum()"}))
WEIGHED = "a number counts as often as its weight says"
CASES = {
    "weights of 1": {"weight": 1.0},
    "weights of 2": {"weight": 2.0},
    "a weight of 0 on rank 0": {"weight": 1.0, "zero": True, "says": "a rank may have weights of 0"},
}


def inputs(case):
    g = case.generator()
    given = [
        {"x": torch.randn(3, generator=g), "weight": torch.full((3,), case.params["weight"])}
        for _ in range(case.world_size)
    ]
    given[0]["weight"] *= 0.0 if "zero" in case.params else 1.0
    return given


def on_rank(answer, x, weight):
    return answer(x, weight)


def expected(case, given):
    x, weight = (torch.cat([own[name] for own in given]).double() for name in ("x", "weight"))
    return [float((x * weight).sum() / weight.sum())] * case.world_size


@pytest.fixture
def check(tmp_path):
    (tmp_path / "mean.py").write_text(SOLUTION)
    return Check(on_rank, inputs, expected, cases=CASES, edits=EDITS, solution=tmp_path / "mean.py", rtol=1e-4)


def verdict_on(exercise, check, text, **options):
    return grade(exercise, check, Answer(text, FILE, "mean"), seed=1, world_sizes=[2, 3], **options)


def test_a_right_answer_passes_and_all_its_cases_are_told(exercise, check):
    verdict = verdict_on(exercise, check, SOLUTION)
    assert verdict.passed and [r.case for r in verdict.results] == [*CASES, *CASES]


def test_a_mistake_is_named_however_it_is_written(exercise, check):
    own = "def mean(x, weight):\n    return float(sum(a * b for a, b in zip(x, weight)) / sum(weight))\n"
    verdict = verdict_on(exercise, check, own)
    assert (verdict.code, verdict.first_fault.headline) == ("DTL-MISTAKE", OWN)
    assert {r.headline for r in verdict.results if r.state != "passed"} == {OWN}


def test_of_edits_that_look_alike_in_the_plain_case_the_one_that_explains_later_ones_is_named(exercise, check):
    ones = Edit("the number of weights in the place of their sum", {"weight.sum()]": "torch.tensor(3.0)]"})
    halves = Edit("weights are halved", {"weight.sum()]": "weight.sum() / weight.max()]"})
    text = ones.applied_to(SOLUTION).replace("(x * weight)", "(x * (weight + 1e-7))")
    check = dataclasses.replace(check, edits=(*EDITS, halves, ones))
    verdict = verdict_on(exercise, check, text)
    assert (verdict.code, verdict.first_fault.headline) == ("DTL-MISTAKE", ones.says)
    assert verdict.first_fault.case == "weights of 2"


def test_an_edit_that_is_wrong_where_the_answer_is_right_is_another_mistake(exercise, check):
    ones = Edit("weights are taken for 1", {"(x * weight).sum(), weight.sum()": "x.sum(), torch.tensor(3.0)"})
    check = dataclasses.replace(check, edits=(ones,))
    text = SOLUTION.replace(
        "    dist", "    total = total if weight.any() else torch.stack([x.sum(), torch.tensor(3.0)])\n    dist"
    )
    verdict = verdict_on(exercise, dataclasses.replace(check, cases={**CASES, "halves": {"weight": 0.5}}), text)
    assert verdict.first_fault.case == "a weight of 0 on rank 0" and verdict.code == "DTL-MISTAKE"
    uneven = {**CASES, "halves": {"weight": 0.5}, "one is 3": {"weight": 1.0, "uneven": True}}
    verdict = verdict_on(exercise, dataclasses.replace(check, cases=uneven, inputs=uneven_inputs), text)
    assert verdict.first_fault.case == "a weight of 0 on rank 0" and verdict.code == "DTL-DIFFICULTY"


def uneven_inputs(case):
    given = inputs(case)
    if "uneven" in case.params:
        given[0]["weight"][0] = 3.0
    return given


def test_what_no_edit_explains_is_named_by_the_first_case_that_is_wrong(exercise, check):
    text = SOLUTION.replace("    dist", "    total += 1e-3 * (weight == 0).sum()\n    dist")
    verdict = verdict_on(exercise, check, text)
    assert verdict.code == "DTL-DIFFICULTY"
    assert verdict.first_fault.headline.startswith("a rank may have weights of 0 (a weight of 0 on rank 0: the result")
    assert verdict.score == pytest.approx(4 * 2 / 3, abs=1e-4)


def test_a_second_fault_is_named_where_the_first_does_not_explain_it(exercise, check):
    text = EDITS[1].applied_to(SOLUTION).replace("    dist", "    total += 9 * (weight == 0).any()\n    dist")
    verdict = verdict_on(exercise, check, text)
    assert verdict.first_fault.headline == SQUARED and verdict.first_fault.case == "weights of 2"
    beyond = [r for r in verdict.results if r.case == "a weight of 0 on rank 0"]
    assert beyond[0].world_size == 2 and beyond[0].headline.startswith("a rank may have weights of 0")
    assert SQUARED not in [r.headline for r in beyond]  # nor with 3 ranks, where the edit was not run


def test_a_wrong_plain_case_that_no_edit_explains_keeps_what_the_values_say(exercise, check):
    verdict = verdict_on(exercise, check, SOLUTION.replace(".item()", ".item() * 7"))
    assert verdict.code == "DTL-VALUE" and "should be" in verdict.first_fault.headline


def test_without_the_solution_a_mistake_stays_without_its_name(exercise, check, tmp_path):
    check = dataclasses.replace(check, solution=tmp_path / "none.py")
    assert verdict_on(exercise, check, EDITS[0].applied_to(SOLUTION)).code == "DTL-VALUE-NAN"


def test_an_edit_that_hangs_or_raises_names_nothing_and_costs_the_answer_nothing(exercise, check):
    raises = Edit("it raises", {SUM: "raise ValueError"})
    check = dataclasses.replace(check, edits=(*EDITS, raises))
    case = check.all_cases(2, 1)[0]
    assert values_of_edits(check, [(case, check.inputs(case))]) == {}
    assert verdict_on(exercise, check, EDITS[0].applied_to(SOLUTION)).code == "DTL-VALUE-NAN"


def test_an_edit_that_no_longer_applies_is_an_error(check):
    with pytest.raises(ValueError, match="has 'no such text' 0 times"):
        answers_of_edits(dataclasses.replace(check, edits=(Edit("gone", {"no such text": ""}),)))


def test_a_case_may_be_for_some_world_sizes_only(check):
    check = dataclasses.replace(check, cases={**CASES, "three ranks": {"weight": 1.0, "sizes": (3,)}})
    assert [len(check.all_cases(size, 1)) for size in (2, 3)] == [3, 4]


def test_edits_with_more_marks_than_a_rank_may_set_name_nothing(check, monkeypatch):
    def run_all(self, *args):
        raise Tampered("more than 1000 marks")

    monkeypatch.setattr(CaseRanks, "run_all", run_all)
    case = check.all_cases(2, 1)[0]
    assert values_of_edits(check, [(case, check.inputs(case))]) == {}


def test_edits_may_be_several_tasks_of_the_ranks_which_lead_to_the_same_values(check, monkeypatch):
    tasks, run_all = [], CaseRanks.run_all

    def counted(self, check, runs, seconds):
        tasks.append(len(runs))
        return run_all(self, check, runs, seconds)

    monkeypatch.setattr(CaseRanks, "run_all", counted)
    cases = check.all_cases(2, 1)
    runs = [(case, check.inputs(case)) for case in cases]
    in_one = values_of_edits(check, runs)
    assert repr(values_of_edits(dataclasses.replace(check, edits_at_once=1), runs)) == repr(
        in_one
    )  # as text: it has a NaN
    assert tasks == [2 * len(cases), len(cases), len(cases)]
    assert len({str(values) for values in in_one.values()}) == len(EDITS)
