"""ch16.bug_lab: a case for each program of the lab, with what comes near to its fault.

What is wrong with a program stands in `_faults_of_programs.py`; `tests/production/bug_lab` shows it on ranks.
"""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.production.bug_lab import CAUSES, PROGRAMS
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ..sent import no_stores
from ._faults_of_programs import FAULTS, Fault, numbers

CASES: dict[str, dict[str, Any]] = {f"{name} ({program.symptom})": {"of": name} for name, program in PROGRAMS.items()}
OTHER = "DTL-VALUE-FAULT"
KEYS = {"ranks", "line", "cause"}
PARTS = {  # which parts are right, in the order ranks, line, cause
    (True, True, False): "the ranks and the line are right",
    (True, False, True): "the ranks and the cause are right",
    (False, True, True): "the line and the cause are right",
    (True, False, False): "the ranks are right",
    (False, True, False): "the line is right",
    (False, False, True): "the cause is right",
    (False, False, False): "none of ranks, line and cause is right yet",
}


def only_knows(source: str) -> Finding | None:
    """A rule on an answer's text: it runs no program, whose processes would outlive it."""
    reason = "run programs in another cell; this function only returns what you found"
    return find_forbidden(source, {"dtlearn.production.bug_lab.run_program": reason})


def inputs(case: Case) -> Given:
    return [{"program": case.params["of"]}] * case.world_size


def on_rank(answer: Any, program: Any) -> Any:
    """The ranks in their order, whether they came as a list, a tuple or a set."""
    got = answer(program)
    ranks = got.get("ranks") if isinstance(got, dict) else None
    if isinstance(ranks, list | tuple | set | frozenset | range) and all(isinstance(rank, int) for rank in ranks):
        return {**got, "ranks": sorted(set(ranks))}
    return got


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    program = case.params["of"]
    fault = FAULTS[program]
    for found in got:
        if found is None:
            return Finding("DTL-VALUE-NONE", f"no fault of {program} is named yet")
        if said := _malformed(found, program):
            return Finding("DTL-VALUE-TYPE", said)
        ranks, line, cause = set(found["ranks"]), found["line"], found["cause"]
        right = (ranks == set(fault.ranks), line in numbers(program, fault.lines), cause == fault.cause)
        if right == (True, True, True):
            continue
        wrong = [
            *([] if right[0] else [_ranks(ranks, fault)]),
            *([] if right[1] else [_line(line, fault, program)]),
            *([] if right[2] else [_cause(cause, fault)]),
        ]
        code, said = next((one for one in wrong if one[0] != OTHER), wrong[0])  # what comes near, if it does
        return Finding(code, f"{said} ({PARTS[right]})")
    return None


def _malformed(found: Any, program: str) -> str:
    """What is no answer at all, as a sentence; "" if it is one."""
    if not isinstance(found, dict) or set(found) != KEYS:
        keys = sorted(map(str, found)) if isinstance(found, dict) else type(found).__name__
        return f'expected a dict with the keys "ranks", "line" and "cause", or None; got {keys}'
    size, length = PROGRAMS[program].world_size, len(PROGRAMS[program].text.splitlines())
    ranks, line, cause = found["ranks"], found["line"], found["cause"]
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank < size for rank in ranks) or not ranks:
        return f'"ranks" are numbers from 0 to {size - 1} in a list, at least one; got {ranks!r}'
    if type(line) is not int or not 1 <= line <= length:
        return f'"line" is a number from 1 to {length}, as in the listing; got {line!r}'
    known = isinstance(cause, str) and cause in CAUSES
    return "" if known else f'"cause" is one of the names in the table; got {cause!r}'


def _ranks(ranks: set[int], fault: Fault) -> tuple[str, str]:
    """The code and the sentence for wrong ranks."""
    if not ranks & set(fault.ranks):
        return "DTL-VALUE-VICTIM", fault.only
    if ranks < set(fault.ranks):
        return OTHER, "another rank has wrong calls or values, too"
    return OTHER, "some of these ranks, and not all of them, are at fault. " + fault.only


def _line(line: int, fault: Fault, program: str) -> tuple[str, str]:
    """The code and the sentence for a wrong line."""
    if line in numbers(program, fault.shows):
        return "DTL-VALUE-SHOWS", f"on line {line} the fault shows, or is prepared: it arises on another one"
    text = PROGRAMS[program].text.splitlines()[line - 1].strip()
    if not text or text.startswith(("#", '"""', "import ", "from ", "def ")):
        return OTHER, f"line {line} computes and sends nothing: {text[:40] or 'it is empty'}"
    return OTHER, f"the fault does not arise on line {line}"


def _cause(cause: str, fault: Fault) -> tuple[str, str]:
    """The code and the sentence for a wrong cause."""
    if cause in fault.near:
        return "DTL-MISTAKE", f"not {cause!r}: {fault.near[cause]}"
    return OTHER, f"not {cause!r}: nothing that you can see in a run speaks for it"


CHECK = Check(
    on_rank,
    inputs,
    expected=None,
    cases=CASES,
    verify=verify,
    example=[{"program": "sharded_save"}],
    rules=[rules.most_messages("0")],
    reads=[no_stores, only_knows],
)
