"""Two ways to name a mistake without computing what it leads to.

A ladder: the cases of a check are in the order of difficulty, and each adds one to the first. The first case with a
wrong result names the mistake, whatever the answer does: right without padding and wrong with it is a matter of
padding.

Edits: what the first case does not tell apart. A mistake is what it changes in the worked solution, and what it leads
to is found by running it, on ranks of the grader's own, when an answer is wrong. They hold the solution: no learner's
code runs there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...runtime.errors import LaunchError
from ...runtime.record.rank_file import Tampered
from .. import plain_values
from ..check import Case, Check, Given, Stress
from ..verdict import Result
from .compare import compare
from .run_case import Answer, CaseRanks, Evidence

NAMED, DIFFICULTY = "DTL-MISTAKE", "DTL-DIFFICULTY"  # an edit; the first case that is wrong
_SECONDS = 60.0  # for a task of edits; they take milliseconds, but for a machine that is busy


@dataclass(frozen=True)
class CaseValues:
    """What the ranks returned in a case whose run went well.

    Attributes:
        at: which of the results of the grading.
        given, got: of all ranks.
        is_wrong: the values are not the expected ones.
    """

    at: int
    case: Case
    given: Given
    got: list[Any]
    is_wrong: bool


# What each edit returns in these cases of one world size, by the edit's number: for each case the values by rank.
ValuesOfEdits = Callable[[Check, Sequence[tuple[Case, Given]]], dict[int, list[list[Any]]]]


def named(
    check: Check, values: Sequence[CaseValues], results: list[Result], of_edits: ValuesOfEdits | None = None
) -> list[Result]:
    """The results, those with wrong values named by the ladder and the edits of their check.

    The mistake is looked for where it shows first: in the earliest case, with the fewest ranks. An edit that is wrong
    where the answer is right is another mistake. Later cases that the same edit explains are no second fault.

    Args:
        of_edits: what edits lead to; None: run them.
    """
    order = list(check.cases)
    wrong = sorted((v for v in values if v.is_wrong), key=lambda v: (order.index(v.case.name), v.case.world_size))
    if not wrong:
        return results
    first, results = wrong[0], list(results)
    of_size = [v for v in values if v.case.world_size == first.case.world_size]
    explained = _explained(check, of_size, of_edits or values_of_edits)
    right = [v for v in of_size if not v.is_wrong]
    fits = [e for e, alike in explained.items() if first in alike and all(v in alike for v in right)]
    edit = max(fits, key=lambda e: len(explained[e]), default=None)
    difference = results[first.at].headline
    same_size = [w for w in wrong if w in of_size]
    if edit is not None:
        others = {w.case.name for w in same_size if w not in explained[edit]}  # with another number of ranks, too
        alike = [w for w in wrong if w in explained[edit] or not (w in same_size or w.case.name in others)]
        for w in alike:
            results[w.at] = replace(results[w.at], code=NAMED, headline=check.edits[edit].says, advice="")
        later = next((w for w in same_size if w not in alike), None)
        if later is not None and later.case.says:  # what the edit does not explain is another one
            results[later.at] = _beyond(results[later.at], later.case, results[later.at].headline)
    elif first.case.says:
        for w in wrong:
            if w.case.name == first.case.name:
                results[w.at] = _beyond(results[w.at], first.case, difference)
            else:  # it fails for the same reason, as far as is known
                results[w.at] = replace(results[w.at], code="DTL-VALUE")
    return results


def _beyond(result: Result, case: Case, difference: str) -> Result:
    return replace(result, code=DIFFICULTY, headline=f"{case.says} ({case.name}: {difference})", advice="")


def _explained(check: Check, values: Sequence[CaseValues], of_edits: ValuesOfEdits) -> dict[int, list[CaseValues]]:
    """The cases in which each edit leads to the same values, by the edit's number. All have one number of ranks."""
    plain = replace(check, mistakes=None)
    return {
        number: [
            v
            for v, got in zip(values, by_case, strict=True)
            if not compare(plain, v.case, v.given, got, v.got)  # the edit's values in the place of the right ones
        ]
        for number, by_case in of_edits(check, [(v.case, v.given) for v in values]).items()
    }


def values_of_edits(check: Check, runs: Sequence[tuple[Case, Given]]) -> dict[int, list[list[Any]]]:
    """What each edit, by its number, returns in these cases of one world size: of each case the values by rank.

    {} where the solution is not there, or an edit raised or hung: a mistake then stays without its name.
    """
    if not check.edits or check.solution is None or not check.solution.is_file():
        return {}
    answers = answers_of_edits(check)
    plain, evidence = replace(check, stress=Stress(), hold=None), list[Evidence]()
    at_once = check.edits_at_once or len(answers)
    with CaseRanks() as ranks:
        try:
            for first in range(0, len(answers), at_once):
                some = answers[first : first + at_once]
                part = ranks.run_all(plain, [(case, given, a) for a in some for case, given in runs], _SECONDS)
                if not part:
                    return {}
                evidence += part
        except (LaunchError, Tampered):  # the second: more marks than a rank may set
            return {}
    values = [[plain_values.load(data or b"")["value"] for data in one.returned] for one in evidence]
    return {n: values[n * len(runs) : (n + 1) * len(runs)] for n in range(len(answers))}


def answers_of_edits(check: Check) -> list[Answer]:
    """The wrong answers that the edits of a check make of its solution."""
    assert check.solution is not None
    solution = check.solution.read_text("utf-8")
    name = check.solution.stem
    return [Answer(edit.applied_to(solution), check.solution.name, name) for edit in check.edits]
