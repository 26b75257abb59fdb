"""One case, or all cases of a check at one world size: run on ranks, and judged."""

import functools
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...runtime.errors import LaunchError
from ...runtime.machine.patience import busy
from ...runtime.record.rank_file import Tampered
from .. import plain_values
from ..check import Case, Check, Given
from ..verdict import Result
from .compare import compare
from .judge import judge
from .run_case import Answer, CaseRanks, Evidence, by_chance

_TOGETHER = 3.0  # seconds for all cases at once; where that is too little each is run by itself


@dataclass(frozen=True)
class Judged:
    """What came of one case.

    Attributes:
        result: its result.
        payload: n in the budgets' formulas, bytes.
        evidence: of the run; None: there was none.
        given: the inputs of all ranks.
        values: by rank, what was returned, if the check is a ladder and the run went well; else [].
        has_wrong_values: they are not the expected ones.
    """

    result: Result
    payload: int = 0
    evidence: Evidence | None = None
    given: Given = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    has_wrong_values: bool = False


def judge_all(
    exercise_id: str, check: Check, cases: Sequence[Case], answer: Answer, ranks: CaseRanks
) -> dict[str, Judged]:
    """Judge all cases in one run, by name; {} if that run raised, hung or was slow: each is then run by itself.

    What an answer did to its process may tell on the next case. So one that fails here counts for nothing until one has
    failed likewise on ranks of its own.
    """
    if len(cases) < 2 or by_chance(check):
        return {}
    try:
        given = [check.inputs(case) for case in cases]
        runs = [(case, inputs, answer) for case, inputs in zip(cases, given, strict=True)]
        evidence = ranks.run_all(check, runs, min(_TOGETHER, check.seconds))
        judged = {
            case.name: _judged(exercise_id, check, case, inputs, own, answer)
            for case, inputs, own in zip(cases, given, evidence)  # noqa: B905, there may be none
        }
    except Exception:  # whatever it is, it comes again in a run of its own, and is said there
        judged = {}
    if not judged or any(one.result.state != "passed" for one in judged.values()):
        ranks.drop()
    return judged


def judge_case(exercise_id: str, check: Check, case: Case, answer: Answer, ranks: CaseRanks) -> Judged:
    """Judge one case in a run of its own."""
    outcome = functools.partial(Result, case.name, case.world_size)
    try:
        given = check.inputs(case)
        evidence = ranks.run(check, case, given, answer)
        if evidence.starved and not busy():  # the load has gone with the ranks: it was theirs, unless by chance
            evidence = ranks.run(check, case, given, answer)
            evidence.starved = evidence.starved and busy()
        judged = _judged(exercise_id, check, case, given, evidence, answer)
        if judged.result.state != "passed" and ranks.drop():
            evidence = ranks.run(check, case, given, answer)
            judged = _judged(exercise_id, check, case, given, evidence, answer)
        return judged
    except LaunchError as error:
        return Judged(outcome("error", "DTL-GRADER", str(error)))
    except Tampered as error:
        return Judged(outcome("failed", "DTL-TAMPERED", str(error)))
    except Exception as error:  # the grader's own fault must not look like the learner's
        text = f"the grader failed ({type(error).__name__}: {error}); this is not your fault"
        return Judged(outcome("error", "DTL-GRADER", text, tuple(traceback.format_exc().splitlines()[-8:])))


def _judged(exercise_id: str, check: Check, case: Case, given: Given, evidence: Evidence, answer: Answer) -> Judged:
    """Judge as `judge` does; say so if the machine had no time, or if the check cannot read the data."""
    payload = check.payload(case, given) if check.payload else 0
    values: list[Any] = []
    is_wrong = False
    try:
        result = judge(check, case, given, evidence, answer, exercise_id)
        if check.expected and check.is_ladder and evidence.error is None:
            values = [plain_values.load(data or b"")["value"] for data in evidence.returned]
            is_wrong = result.state == "failed" and bool(
                compare(check, case, given, check.expected(case, given), values)
            )
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        text = f"what the ranks sent and logged cannot be judged ({why}): a person has to look"
        details = tuple(traceback.format_exc().splitlines()[-8:])
        result = Result(case.name, case.world_size, "error", "DTL-UNJUDGED", text, details)
    if result.state == "timeout" and evidence.starved:
        text = "not judged: the machine was so busy that the ranks hardly got a processor before their time was up"
        result = replace(result, state="skipped", code="DTL-LOAD", headline=text, details=(), advice="")
    return Judged(result, payload, evidence, given, values, is_wrong)
