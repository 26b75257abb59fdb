"""From evidence to results, without ranks: what is missing or malformed is never a pass."""

import pytest
import torch

from dtlearn.grading import plain_values, rules
from dtlearn.grading.check import Case, Check, Finding
from dtlearn.grading.judging.judge import judge
from dtlearn.grading.judging.run_case import Answer, Evidence
from dtlearn.grading.on_rank.run_answer import DRIVER_FILE
from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.faults.diagnosis import Diagnosis
from dtlearn.runtime.faults.failure import Failure
from dtlearn.runtime.faults.stacks import Stuck
from dtlearn.runtime.machine.limits import Limits
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.watch.explain import explain_failures

FILE = "exercises/ch01_ranks/mean.py"
ANSWER = Answer("", FILE, "mean")
CASE = Case("a case", 2, 0)
GIVEN = [{"x": torch.zeros(2)}, {"x": torch.ones(2)}]
RIGHT = torch.tensor([0.5, 0.5])


def check_with(**options) -> Check:
    return Check(lambda answer, x: None, lambda case: GIVEN, **{"expected": lambda case, given: [RIGHT] * 2, **options})


def sent(*results, changed=()) -> list[bytes | None]:
    return [plain_values.dump({"value": value, "changed": list(changed)}) for value in results]


def judged(returned=None, error=None, record=None, answer=ANSWER, **options):
    evidence = Evidence(returned or [None, None], error, record or Record(2))
    return judge(check_with(**options), CASE, GIVEN, evidence, answer, "ch01.mean")


def event(op="all_reduce", file=FILE, rank=0, seq=0, nbytes=8):
    return Event(rank, seq, op, "world", seq, nbytes, "float32", (2,), None, {}, seq, seq + 1, False, file, 3)


def test_a_changed_input_is_named_with_how_to_copy_it():
    result = judged(sent(RIGHT, RIGHT, changed=["x"]))
    assert result.code == "DTL-MUTATED" and result.headline == "rank 0 changed what it was given: x"
    assert "print x on rank 0 after each line of yours" in result.advice
    assert "`x.clone()`" in result.advice and "`a += b` changes the tensor itself" in result.advice


def test_how_an_input_changed_is_said():
    now = GIVEN[1]["x"].clone()
    now[0] += 6
    results = [plain_values.dump({"value": RIGHT, "changed": [], "now": None})]
    results += [plain_values.dump({"value": RIGHT, "changed": ["x"], "now": now})]
    was = GIVEN[1]["x"][0].item()
    expected = (
        f"rank 1 changed what it was given: x (1 of 2 elements of x changed; the first, at (0,), was {was:g} and "
    )
    assert judged(results).headline == f"{expected}is {was + 6:g})"


def test_right_results_pass():
    result = judged(sent(RIGHT, RIGHT), record=Record(2, (event(nbytes=40), event(rank=1))))
    assert (result.state, result.code, result.bytes, result.messages) == ("passed", "", 40, 1)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"nonsense",
        plain_values.dump(RIGHT),
        plain_values.dump({"value": RIGHT}),
        plain_values.dump({"changed": []}),
        plain_values.dump({"value": RIGHT, "changed": 5}),
        plain_values.dump({"value": RIGHT, "changed": None}),
        plain_values.dump([RIGHT]),
        plain_values.dump("value"),
    ],
)
def test_a_result_that_is_missing_or_malformed_fails(data):
    result = judged([*sent(RIGHT), data])
    assert (result.state, result.code, result.rank) == ("failed", "DTL-RESULT", 1)


def test_wrong_values_changed_inputs_and_broken_rules_fail_in_this_order():
    bad = RIGHT * 3
    calls = Record(2, (event("barrier"),))
    options = {"rules": [rules.never("barrier")], "record": calls}
    assert judged(sent(bad, bad, changed=["x"]), **options).code == "DTL-MUTATED"
    assert judged(sent(bad, bad, changed=["x"]), may_change_inputs=True).code == "DTL-VALUE"
    assert judged(sent(bad, bad), **options).code == "DTL-VALUE"
    broken = judged(sent(RIGHT, RIGHT), **options)
    assert (broken.state, broken.code, broken.line) == ("failed", "DTL-RULE-CALLS", 3)


def test_verify_sees_values_and_the_answers_own_calls():
    def verify(case, given, got, record):
        assert given is GIVEN and len(got) == 2
        return Finding("DTL-VALUE-MINE", f"{len(record)} calls") if len(record) != 1 else None

    own, of_the_check = event(), event("barrier", DRIVER_FILE, seq=1)
    record = Record(2, (own, of_the_check))
    result = judged(sent(1, 2), expected=None, verify=verify, record=record, rules=[rules.never("barrier")])
    assert result.state == "passed" and result.messages == 1
    assert judged(sent(1, 2), expected=None, verify=verify, record=Record(2)).code == "DTL-VALUE-MINE"
    # The values are compared first.
    assert judged(sent(1, 2), verify=verify, record=record).code.startswith("DTL-VALUE-TYPE")


def test_what_is_counted_is_for_one_call_of_the_answer():
    record = Record(2, tuple(event(seq=i) for i in range(7)))
    result = judged(sent(RIGHT, RIGHT), record=record, calls=lambda case: case.world_size)
    assert (result.messages, result.bytes) == (4, 28)


def failed(*failures: Failure, answer=ANSWER):
    error = explain_failures(failures, {}, Limits(), dict.fromkeys(range(2), ""))
    return judged(sent(RIGHT, RIGHT), error=error, answer=answer)


def test_a_failure_outweighs_right_values():
    trace = f'  File "{FILE}", line 3, in mean\n  File "{FILE}", line 9, in inner\n  File "torch/x.py", line 80, in y\n'
    result = failed(Failure(1, "raised", "ValueError", "no\nmore", trace))
    assert (result.state, result.code, result.line, result.rank) == ("failed", "DTL-RAISED", 9, 1)
    assert result.headline == "rank 1 raised ValueError: no, line 9" and result.details[0] == "more"


def test_equal_failures_are_told_together_in_the_words_of_a_run():
    one, other = (Failure(r, "raised", "TypeError", f"no <Thing object at 0x7f{r}>") for r in (0, 1))
    assert failed(one, other).headline == "ranks 0 and 1 raised TypeError: no <Thing object>"
    unfit = failed(Failure(0, "raised", "BadResult", "mean: the result is of type set"))
    assert unfit.headline == "rank 0 returned no plain data: mean: the result is of type set"
    changed = failed(*(Failure(r, "raised", "ChangedWhileSent", "changed the tensor of an isend") for r in (0, 1)))
    assert changed.headline == "ranks 0 and 1 changed the tensor of an isend"
    crashed = failed(*(Failure(r, "killed", "SIGSEGV", "was killed by SIGSEGV") for r in (0, 1)))
    assert crashed.headline == "ranks 0 and 1 were killed by SIGSEGV"


def test_none_from_a_call_that_works_in_place_is_explained():
    failure = Failure(0, "raised", "TypeError", "unsupported operand type(s) for /: 'NoneType' and 'int'")
    calls = Answer("def mean(x):\n    return dist.all_reduce(x) / 2", FILE, "mean")
    assert "Calls such as all_reduce and broadcast return None" in failed(failure, answer=calls).advice
    assert failed(failure).advice == ""  # nothing is sent
    alone = (
        "def mean(x, y):\n    dist.all_reduce(x, op=dist.ReduceOp.MAX)\n    n = dist.get_world_size()\n    return y / n"
    )
    assert failed(failure, answer=Answer(alone, FILE, "mean")).advice == ""  # the None is another one
    assert failed(Failure(0, "raised", "TypeError", "'int'")).advice == ""
    trace = f'  File "{FILE}", line 2, in mean\n'
    no_gradient = Failure(0, "raised", "AttributeError", "'NoneType' object has no attribute 'norm'", trace)
    said = failed(no_gradient, answer=Answer("def mean(p):\n    return p.grad.norm()", FILE, "mean")).advice
    assert said == "A parameter that got no gradient has None as its `.grad`: leave it out, or take zeros for it."


def test_a_name_of_another_exercise_is_explained():
    failure = Failure(0, "raised", "NameError", "name 'ring_all_gather' is not defined")
    assert failed(failure).advice.startswith("An answer is graded alone: it knows no name of another cell or exercise.")


def test_a_result_that_is_to_be_trained_is_explained():
    """`optimizer_class([p.float() for p in parameters])`, the first that one writes for fp32 masters."""
    failure = Failure(0, "raised", "ValueError", "can't optimize a non-leaf Tensor")
    assert "`p.detach().float().clone()` can be trained" in failed(failure).advice


@pytest.mark.parametrize(
    ("failure", "state", "code"),
    [
        (Failure(0, "raised", "NotImplementedError", "ch01.mean: average"), "not-attempted", "DTL-STUB"),
        (Failure(0, "raised", "NotImplementedError", "ch01.mean_more: other"), "failed", "DTL-RAISED"),
        (Failure(0, "raised", "NotImplementedError", "not ch01.mean: this"), "failed", "DTL-RAISED"),
        (Failure(0, "raised", "BadResult", "mean: the result is of type set"), "failed", "DTL-RESULT"),
        (Failure(0, "raised", "RuntimeError", ""), "failed", "DTL-RAISED"),
        (Failure(0, "killed", "SIGSEGV", "was killed by SIGSEGV"), "crashed", "DTL-RANK-KILLED"),
        (Failure(0, "ended", "", "ended"), "crashed", "DTL-RANK-EXIT"),
    ],
)
def test_kinds_of_failure(failure, state, code):
    result = failed(failure)
    assert result.state == state and result.code.startswith(code)


def test_a_hang_names_the_line_in_the_learners_file():
    calls = {0: event(file="other.py"), 1: event(rank=1)}
    result = judged(error=RanksDisagree(Diagnosis("DTL-COLL-ORDER", "they differ", (0, 1), calls, {0: "", 1: ""})))
    assert (result.state, result.code, result.rank, result.line) == ("failed", "DTL-COLL-ORDER", 1, 3)
    assert result.headline.startswith("they differ")


@pytest.mark.parametrize(
    ("code", "adds"),
    [("DTL-P2P-UNMATCHED", True), ("DTL-COLL-SHAPE", True), ("DTL-COLL-SKIP", True), ("DTL-COLL-ROOT", False)],
)
def test_a_check_adds_what_it_knows_of_a_run_that_did_not_end_well(code, adds):
    asked = []

    def why(case, given, record):
        asked.append((case, given, [e.file for e in record]))
        return "rank 0 is no root"

    record = Record(2, (event("send"), event("send", file=DRIVER_FILE, rank=1)))
    error = RanksDisagree(Diagnosis(code, "they differ", (0, 1), {0: None, 1: None}, {0: "", 1: ""}))
    result = judged(error=error, record=record, why=why)
    assert result.headline == ("they differ: rank 0 is no root" if adds else "they differ")
    assert asked == ([(CASE, GIVEN, [FILE])] if adds else [])
    assert judged(error=error, record=record, why=lambda case, given, record: "").headline == "they differ"
    counted = (
        "" if code.startswith("DTL-P2P") else ": your function runs 5 times here, and the calls of all are counted"
    )
    assert judged(error=error, record=record, calls=lambda case: 5).headline == f"they differ{counted}"


def test_an_index_that_is_out_of_range_has_a_hint_where_chunk_is_called():
    beyond, other = (Failure(0, "raised", error, "tuple index out of range") for error in ("IndexError", "ValueError"))
    chunks, splits = (Answer(f"parts = x.{call}(4)", FILE, "mean") for call in ("chunk", "tensor_split"))
    assert "chunk(n) may give fewer" in failed(beyond, answer=chunks).advice
    assert not failed(beyond, answer=splits).advice and not failed(other, answer=chunks).advice


def test_a_time_out_names_the_rank_that_runs():
    stuck = (Stuck(0, "waits", "all_reduce"), Stuck(1, "runs"))
    result = judged(sent(RIGHT, RIGHT), error=RanksTimeout("too slow:\n  rank 1", stuck))
    assert (result.state, result.rank, result.headline, result.details) == ("timeout", 1, "too slow", ("  rank 1",))


def test_details_are_bounded():
    text = "\n".join(map(str, range(1000)))
    assert len(judged(error=RankError(text, (Failure(0, "raised", "E", "m"),))).details) == 40


def test_rules_are_not_judged_by_an_incomplete_record():
    record = Record(2, (event(),), incomplete="the record of rank 1 is incomplete: No space left on device")
    ruled = judged(sent(RIGHT, RIGHT), record=record, rules=[rules.only("send")])
    assert (ruled.state, ruled.code) == ("error", "DTL-GRADER")
    assert "No space left" in ruled.headline
    assert judged(sent(RIGHT, RIGHT), record=record).state == "passed"  # values need no record
