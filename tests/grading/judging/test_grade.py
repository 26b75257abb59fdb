import dataclasses

import pytest
import torch

from dtlearn.course import Exercise
from dtlearn.grading.check import Case, Check
from dtlearn.grading.judging import judge_cases as module
from dtlearn.grading.judging.grade import Answer, grade, payload_bytes
from dtlearn.grading.judging.run_case import CaseRanks, Evidence
from dtlearn.grading.verdict import Result
from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.record.record import Record

FILE = "exercises/ch01_ranks/mean.py"


def verdict_on(answers, name, exercise, check, **options):
    return grade(exercise, check, Answer(answers[name], FILE, "mean"), **{"seed": 1, **options})


@pytest.mark.parametrize(
    ("name", "state", "code", "score"),
    [
        ("right", "passed", "", 4),
        ("summed", "failed", "DTL-VALUE-FACTOR", 0),
        ("hangs", "failed", "DTL-COLL-SKIP", 0),
        ("crashes", "crashed", "DTL-RANK-EXIT", 0),
        ("stub", "not-attempted", "DTL-STUB", 0),
        ("syntax", "failed", "DTL-SYNTAX", 0),
    ],
)
def test_answers_get_their_verdicts(answers, exercise, check, name, state, code, score):
    verdict = verdict_on(answers, name, exercise, check)
    assert (verdict.state, verdict.code, verdict.score) == (state, code, score), verdict.first_fault


def test_what_is_written_for_some_world_sizes_fails_at_the_others(exercise, check, right):
    exercise = dataclasses.replace(exercise, world_sizes=(1, 2, 3))
    lines = "    if {}:\n        raise NotImplementedError('ch01.mean: average')\n    total ="
    for condition, good in (("dist.get_world_size() == 3", [1, 2]), ("dist.get_world_size() != 3", [3])):
        text = right.replace("    total =", lines.format(condition))
        verdict = grade(exercise, check, Answer(text, FILE, "mean"), seed=1)
        assert verdict.state == "failed" and 0 < verdict.score < exercise.points
        assert sorted({r.world_size for r in verdict.results if r.state == "passed"}) == good
        assert "not written for this yet" in verdict.first_fault.headline


def test_a_stub_is_told_once_and_a_loop_is_not_repeated(answers, exercise, check):
    assert len(verdict_on(answers, "stub", exercise, check).results) == 1
    check = dataclasses.replace(check, seconds=1.0)
    verdict = verdict_on(answers, "loops", exercise, check)
    assert [r.state for r in verdict.results] == ["timeout", "skipped"] and verdict.state == "timeout"


def test_the_same_seed_gives_the_same_verdict(answers, exercise, check):
    one, two = (verdict_on(answers, "summed", exercise, check, seed=5) for _ in range(2))
    still = {"seconds": 0.0}
    assert [dataclasses.replace(r, **still) for r in one.results] == [
        dataclasses.replace(r, **still) for r in two.results
    ]
    assert one.seed == 5 and 0 <= verdict_on(answers, "stub", exercise, check, seed=None).seed < 1 << 31


@pytest.mark.parametrize("text", ["def mean(x)\n", "x = '\0'\n", "(" * 5000, "é = 1 +\n", "return 3\n"])
def test_what_does_not_compile_is_told_without_running(exercise, check, text):
    verdict = grade(exercise, check, Answer(text, FILE, "mean"))
    assert (verdict.state, verdict.code, verdict.score) == ("failed", "DTL-SYNTAX", 0)


def test_a_warning_of_the_learners_text_is_no_fault(exercise, check, right):
    text = right.replace("    total =", "    '\\d'\n    total =")  # an invalid escape warns
    assert grade(exercise, check, Answer(text, FILE, "mean"), seed=1).passed


# Cases that share their ranks.

THREE = {"one": {"number": 1}, "two": {"number": 2}, "three": {"number": 3}}


def numbered(case):
    return [{"x": torch.full((2,), float(case.params["number"] * (rank + 1)))} for rank in range(case.world_size)]


def graded_in_three_cases(exercise, check, text, monkeypatch):
    """The verdict on two ranks, and how often ranks were started for it."""
    started = []
    monkeypatch.setattr(
        CaseRanks, "_start", lambda self, *args, start=CaseRanks._start: started.append(1) or start(self, *args)
    )
    check = dataclasses.replace(check, inputs=numbered, cases=THREE)
    answer = Answer(f"import torch\nimport torch.distributed as dist\n{text}", FILE, "mean")
    return grade(exercise, check, answer, seed=1, world_sizes=[2]), len(started)


def test_cases_of_a_right_answer_share_their_ranks(exercise, check, right, monkeypatch):
    verdict, started = graded_in_three_cases(exercise, check, right, monkeypatch)
    assert verdict.passed and len(verdict.results) == 3 and started == 1


MEAN = "    total = x.clone()\n    dist.all_reduce(total)\n    return total / dist.get_world_size()\n"


@pytest.mark.parametrize(
    ("leaves", "starts"),
    [("torch.library.define('mine::mean', '(Tensor x) -> Tensor')", 4), ("dist.destroy_process_group = None", 1)],
    ids=["an operator of its own", "no way to leave the group"],
)
def test_what_an_answer_leaves_in_its_process_costs_it_nothing(exercise, check, leaves, starts, monkeypatch):
    """It fails with others in one run and on used ranks; fresh ones say that it is right."""
    verdict, started = graded_in_three_cases(exercise, check, f"def mean(x):\n    {leaves}\n{MEAN}", monkeypatch)
    assert verdict.passed, verdict.first_fault
    assert started == starts


@pytest.mark.parametrize(
    ("wrong", "code", "starts"),
    [
        ("return total", "DTL-VALUE-FACTOR", 2),  # the third case as in the run of all
        ("1 / 0", "DTL-RAISED", 4),
        ("dist.barrier() if dist.get_rank() else None", "DTL-COLL-SKIP", 4),
        ("os._exit(3)", "DTL-RANK-EXIT", 4),
        ("time.sleep(60)", "DTL-TIMEOUT", 3),  # what loops is not tried in a further case
    ],
)
def test_a_fault_of_a_later_case_is_judged_on_fresh_ranks(exercise, check, wrong, code, starts, monkeypatch):
    text = (
        f"import os, time\ndef mean(x):\n    total = x.clone()\n    dist.all_reduce(total)\n"
        f"    if total[0] > 5:\n        {wrong}\n    return total / 2\n"
    )
    check = dataclasses.replace(check, seconds=1.5)
    verdict, started = graded_in_three_cases(exercise, check, text, monkeypatch)
    states = [(r.state, r.code) for r in verdict.results]
    assert states[0] == ("passed", "") and {c for _, c in states[1:]} <= {code, "DTL-SKIPPED"}, verdict.results
    assert verdict.code == code and verdict.results[1].seconds < 5
    assert started == starts


# Without ranks: `play` says how each case ends.


def played(monkeypatch, play, sizes=(1, 2, 3, 4), check=None, budget=None, starved=lambda: False, **options):
    """The verdict when case by case `play(case)` is the (state, code) or (bytes, messages) of the result, and each run
    is `starved()`."""
    exercise = Exercise("ch01.mean", "The mean", 4, tuple(sizes), ("a", "b", "c"), budget or {})

    def judge(check, case, given, evidence, answer, exercise_id):
        state, code, *rest = play(case)
        headline, nbytes, messages = [*rest, "text", 0, 0][:3] if rest else ("text", 0, 0)
        return Result(case.name, case.world_size, state, code, headline, bytes=nbytes, messages=messages)

    monkeypatch.setattr(module, "judge", judge)
    monkeypatch.setattr(CaseRanks, "run", lambda *args: Evidence([], None, Record(1), starved=starved()))
    check = check or Check(lambda answer: None, lambda case: [{}] * case.world_size, lambda case, given: [])
    return grade(exercise, check, Answer("", FILE, "mean"), **options)


def bad_at(*sizes, code="DTL-VALUE"):
    return lambda case: ("failed", code) if case.world_size in sizes else ("passed", "")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ((3, 4), "right with 1 and 2 ranks, wrong with 3 and 4: text"),
        ((3,), "right with 1, 2 and 4 ranks, wrong with 3: text"),
        ((1, 3), "right with 2 and 4 ranks, wrong with 1 and 3: text"),
        ((2,), "right with 1, 3 and 4 ranks, wrong with 2: text"),
    ],
)
def test_right_at_some_world_sizes_is_named(monkeypatch, bad, says):
    verdict = played(monkeypatch, bad_at(*bad))
    assert (verdict.code, verdict.first_fault.headline) == ("DTL-WS", says)
    assert verdict.score == pytest.approx(4 * (3 - len(set(bad) - {1})) / (3 + (1 in bad)), abs=1e-4)


@pytest.mark.parametrize(("bad", "code"), [((2, 3, 4), "DTL-VALUE"), ((1, 2, 3, 4), "DTL-VALUE")])
def test_right_with_one_rank_only_is_no_news(monkeypatch, bad, code):
    verdict = played(monkeypatch, bad_at(*bad))
    assert verdict.code == code and verdict.score == 0


def test_a_better_name_is_kept(monkeypatch):
    assert played(monkeypatch, bad_at(3, 4, code="DTL-VALUE-FACTOR")).code == "DTL-VALUE-FACTOR"


def test_what_was_not_run_did_not_pass(monkeypatch):
    stopped = played(monkeypatch, bad_at(), stop=iter([False, False, True, True, True]).__next__)
    assert stopped.state == "skipped" and not stopped.passed and stopped.tier == "" and stopped.score < 4
    late = played(monkeypatch, bad_at(), seconds=-1.0)
    assert late.state == "skipped" and late.score == 0 and "time limit" in late.results[0].headline


@pytest.mark.parametrize(
    ("busy", "starved", "codes", "final"),
    [
        ([True], [True], ["DTL-LOAD", "DTL-SKIPPED-TIME"], False),
        ([False, False], [True, True], ["DTL-TIMEOUT", "DTL-SKIPPED"], True),  # it made that load itself, twice
        ([False, True], [True, True], ["DTL-LOAD", "DTL-SKIPPED-TIME"], False),
        ([False], [True, False], ["DTL-TIMEOUT", "DTL-SKIPPED"], True),
        ([], [False], ["DTL-TIMEOUT", "DTL-SKIPPED"], True),
    ],
)
def test_what_the_machine_had_no_time_for_is_not_judged_unless_it_made_that_load_itself(
    monkeypatch, busy, starved, codes, final
):
    runs, looks = iter(starved), iter(busy)
    monkeypatch.setattr(module, "busy", lambda: next(looks))
    verdict = played(monkeypatch, lambda case: ("timeout", "DTL-TIMEOUT"), sizes=[2, 3], starved=lambda: next(runs))
    assert ([r.code for r in verdict.results], verdict.final, verdict.passed) == (codes, final, False)
    assert not [*runs, *looks]


def test_progress_is_told_case_by_case(monkeypatch):
    seen = []
    played(monkeypatch, bad_at(3), progress=lambda result, done, total: seen.append((result.state, done, total)))
    assert seen == [("passed", 1, 4), ("passed", 2, 4), ("failed", 3, 4), ("passed", 4, 4)]


@pytest.mark.parametrize(
    ("error", "code"),
    [(LaunchError("no room"), "DTL-GRADER"), (RuntimeError("bug"), "DTL-UNJUDGED"), (MemoryError(), "DTL-GRADER")],
)
def test_the_graders_own_fault_is_no_fail_and_no_pass(monkeypatch, error, code):
    def play(case):
        if case.world_size == 3:
            raise error
        return "passed", ""

    verdict = played(monkeypatch, play)
    assert (verdict.state, verdict.code, verdict.score) == ("error", code, 0)


def test_inputs_that_fail_are_the_graders_fault_too(monkeypatch):
    check = Check(lambda answer: None, lambda case: 1 / 0, lambda case, given: [])
    verdict = played(monkeypatch, bad_at(), check=check)
    assert verdict.state == "error" and "ZeroDivisionError" in verdict.first_fault.headline


@pytest.mark.parametrize(
    ("messages", "tier", "notes"),
    [
        (1, "optimal", 0),
        (2, "good", 1),
        (3, "correct", 1),
    ],
)
def test_tiers(monkeypatch, messages, tier, notes):
    budget = {"messages": {"good": 2, "optimal": "N-1"}}
    verdict = played(monkeypatch, lambda case: ("passed", "", "", 0, messages), sizes=[2], budget=budget)
    assert verdict.tier == tier and len(verdict.notes) == notes
    assert all(f"yours: {messages}" in note for note in verdict.notes)


def test_every_quantity_and_every_case_must_keep_its_budget(monkeypatch):
    budget = {"messages": {"good": 2}, "bytes": {"good": "n/2"}}
    check = Check(
        lambda answer: None, lambda case: [], lambda case, given: [], payload=lambda case, given: 100 * case.world_size
    )

    def tier(nbytes):
        verdict = played(
            monkeypatch, lambda case: ("passed", "", "", nbytes, 1), budget=budget, check=check, sizes=[2, 4]
        )
        return verdict.tier

    assert (tier(100), tier(101)) == ("good", "correct")


def test_a_wrong_answer_has_no_tier(monkeypatch):
    assert played(monkeypatch, bad_at(2), budget={"messages": {"good": 2}}).tier == ""


def test_hidden_checks_count_and_are_marked(monkeypatch):
    open_, hidden = (Check(lambda answer: None, lambda case: [], lambda case, given: [], cases={n: {}}) for n in "ab")
    verdict = played(
        monkeypatch,
        lambda case: ("failed", "DTL-VALUE-NAN") if case.name == "b" else ("passed", ""),
        check=[(open_, False), (hidden, True)],
        sizes=[2],
    )
    assert [(r.case, r.hidden) for r in verdict.results] == [("a", False), ("b", True)] and verdict.score == 2


def test_the_payload_is_the_largest_of_the_ranks():
    given = [{"x": torch.zeros(3)}, {"x": torch.zeros(5, dtype=torch.float64)}]
    assert payload_bytes(given, "x") == 40


def test_cases_at_other_world_sizes_can_be_asked_for(monkeypatch):
    assert [r.world_size for r in played(monkeypatch, bad_at(), world_sizes=[5]).results] == [5]
    assert Case("a", 5, 1).params == {}
