"""From the evidence of one run to its result. Fails closed: what is missing or malformed is never a pass.

The order is that of causes: what the learner's own code raised, ranks that parted, ranks that ended, time, and only
then values and rules.
"""

import contextlib
import math
import re
from dataclasses import replace
from typing import Any

import torch

from ...runtime.errors import RankError, RanksDisagree, RanksTimeout
from ...runtime.faults.failure import Failure
from ...runtime.record.record import Record
from ...runtime.words import without_addresses
from .. import plain_values, rules
from ..check import Case, Check, Finding, Given
from ..on_rank.run_answer import DRIVER_FILE
from ..on_rank.stress import ChangedWhileSent
from ..verdict import Outcome, Result
from .compare import compare, difference
from .run_case import Answer, Evidence

_MOST_LINES = 40
_STUB = "NotImplementedError"
_ARGUMENTS = "An argument has the wrong type, or stands in another's place: name it, as in `group=...`, `src=...`."
_FEWER = "The list is shorter than the loop expects. chunk(n) may give fewer than n pieces; tensor_split(n) gives n."
_ALONE = "An answer is graded alone: it knows no name of another cell or exercise. Define in it what it uses."
_IN_PLACE = "Calls such as all_reduce and broadcast return None: they change the tensor that they are given."
_NO_GRADIENT = "A parameter that got no gradient has None as its `.grad`: leave it out, or take zeros for it."
_USES_NONE = re.compile(r"(?:[=(,]|\breturn)[ \t]*[\w.]*\bdist\w*\.(?:all_|broadcast|reduce|scatter|gather|send\b)")
_NON_LEAF = "`p.float()` is the result of an operation, with a graph; `p.detach().float().clone()` can be trained."
_REUSE = (
    "An isend reads its tensor until wait() returns: receive into another one, and add after wait(). And what an irecv "
    "fills may be sent on only after the wait() of that irecv."
)


def judge(check: Check, case: Case, given: Given, evidence: Evidence, answer: Answer, exercise_id: str) -> Result:
    """The result of one case at one world size."""
    state, finding, details = _find(check, case, given, evidence, answer, exercise_id)
    if check.task_text and finding and finding.rank is not None and finding.code not in ("DTL-STUB", "DTL-RESULT"):
        details = [f"Rank {finding.rank} was given {check.task_text(case, given, finding.rank)}.", "", *details]
    record = of_the_answer(evidence.record)
    ranks = range(case.world_size)
    calls = check.calls(case) if check.calls else 1
    values = [plain_values.load(data or b"")["value"] for data in evidence.returned] if state == "passed" else []
    return Result(
        case=case.name,
        world_size=case.world_size,
        state=state,
        code=finding.code if finding else "",
        headline=finding.text if finding else "",
        details=tuple(details[:_MOST_LINES]),
        advice=finding.advice if finding else "",
        rank=finding.rank if finding else None,
        line=finding.line if finding else None,
        seconds=evidence.seconds,
        bytes=math.ceil(max(rules.bytes_of(record, r) for r in ranks) / calls),
        messages=math.ceil(max(rules.messages_of(record, r) for r in ranks) / calls),
        peak_bytes=max(_peaks(evidence).values(), default=None) if check.memory else None,
        bubble=check.bubble(case, given, values) if check.bubble and values else None,
    )


def _find(
    check: Check, case: Case, given: Given, evidence: Evidence, answer: Answer, exercise_id: str
) -> tuple[Outcome, Finding | None, list[str]]:
    error = evidence.error
    if error is not None:
        state, finding, lines = _explain(error, answer, exercise_id)
        explains = re.match("DTL-(P2P|RAISED|ASYNC-WAIT|COLL-(SHAPE|ORDER|GROUPS|SKIP))", finding.code)
        known = check.why(case, given, of_the_answer(evidence.record)) if check.why and explains else ""
        if not known and finding.code.startswith("DTL-COLL") and check.calls and (times := check.calls(case)) > 1:
            known = f"your function runs {times} times here, and the calls of all are counted"
        return state, replace(finding, text=f"{finding.text}: {known}") if known else finding, lines
    got: list[Any] = []
    for rank, data in enumerate(evidence.returned):
        try:
            result = plain_values.load(data or b"")
            if not isinstance(result, dict) or not isinstance(changed := result.get("changed"), list):
                raise plain_values.Malformed("it has not the form that `run_answer` gives it")
            got.append(result["value"])
            left = result.get("left") or []
        except (plain_values.Malformed, KeyError) as error_:
            return "failed", Finding("DTL-RESULT", f"rank {rank} sent no readable result: {error_}", rank), []
        if changed and not check.may_change_inputs:
            return "failed", _mutated(rank, result, given[rank]), []
        if left:
            text = f"rank {rank} returned and left something running: {', '.join(map(str, left))[:200]}"
            return "failed", Finding("DTL-LEAK", text, rank, None, "Join threads, wait for processes."), []
    record = of_the_answer(evidence.record)
    if check.expected and (wrong := compare(check, case, given, check.expected(case, given), got)):
        return "failed", wrong, []
    if check.verify and (wrong := check.verify(case, given, got, record)):
        return "failed", wrong, []
    if check.rules and record.incomplete:  # what is not in it cannot be judged, and that is nobody's mistake
        return "error", Finding("DTL-GRADER", f"the calls cannot be judged: {record.incomplete}"), []
    for rule in check.rules:
        if wrong := rule(case, given, record):
            return "failed", wrong, []
    if check.memory is not None and (wrong := _over_memory(check, case, given, evidence)):
        return "failed", wrong, []
    return "passed", None, []


def _over_memory(check: Check, case: Case, given: Given, evidence: Evidence) -> Finding | None:
    assert check.memory is not None
    most, peaks = check.memory(case, given), _peaks(evidence)
    if len(peaks) < case.world_size:
        return Finding("DTL-RESULT", "a rank did not say how much memory it used")
    rank = max(peaks, key=lambda r: peaks[r])
    if peaks[rank] <= most:
        return None
    text = f"rank {rank} held up to {peaks[rank]:,} bytes of new tensors at once; the budget is {most:,.0f}"
    advice = case.says or "Reuse buffers, or drop what is done with."
    return Finding("DTL-RULE-MEMORY", text, rank, None, advice)


def _peaks(evidence: Evidence) -> dict[int, int]:
    """The most bytes of new tensors that each rank held at once, by rank; without ranks that did not say."""
    peaks = {}
    for rank, data in enumerate(evidence.returned):
        with contextlib.suppress(plain_values.Malformed):
            result = plain_values.load(data or b"")
            peak = result.get("peak") if isinstance(result, dict) else None
            if type(peak) is int and peak >= 0:
                peaks[rank] = peak
    return peaks


def of_the_answer(record: Record) -> Record:
    """The record without the calls that the check's own `on_rank` made."""
    return replace(record, events=tuple(e for e in drawn(record) if not e.detail.get("handed_over")))


def drawn(record: Record) -> Record:
    """What a picture shows: also the calls that functions made which the check had handed to the answer."""
    return replace(record, events=tuple(e for e in record if e.file != DRIVER_FILE))


def _explain(error: RankError | RanksTimeout, answer: Answer, exercise_id: str) -> tuple[Outcome, Finding, list[str]]:
    lines = str(error).splitlines()
    if isinstance(error, RanksDisagree):
        diagnosis = error.diagnosis
        shown = [(r, e.line) for r, e in diagnosis.calls.items() if e is not None and e.file == answer.file]
        rank, at = shown[0] if shown else (diagnosis.ranks[0] if diagnosis.ranks else None, None)
        return "failed", Finding(diagnosis.code, diagnosis.headline, rank, at), lines[1:]
    if isinstance(error, RanksTimeout):
        rank = next((s.rank for s in error.stuck if s.state == "runs"), None)
        return "timeout", Finding(error.code, lines[0].rstrip(":"), rank), lines[1:]
    first, text = error.failures[0], without_addresses(lines[0])
    if first.type == _STUB and first.message.startswith(f"{exercise_id}:"):
        return "not-attempted", Finding("DTL-STUB", "not attempted yet"), []
    if first.kind == "raised":
        line = _line_in(first, answer)
        where = f", line {line}" if line else ""
        raised = f" raised {first.type}: "
        if first.type == ChangedWhileSent.__name__:
            text = text.replace(raised, " ", 1) + where
            return "failed", Finding("DTL-ASYNC-REUSE", text, first.rank, line, _REUSE), lines[1:]
        if first.type == "BadResult":  # the grader's own exception: nothing of it is in the learner's code
            text = text.replace(raised, " returned no plain data: ", 1)
            return "failed", Finding("DTL-RESULT", text, first.rank), []
        advice = _FEWER if first.type == "IndexError" and re.search(r"\bchunk\(", answer.source) else ""
        advice = _ARGUMENTS if "incompatible function arguments" in first.message else advice
        advice = _ALONE if first.type == "NameError" else advice
        if "NoneType" in first.message:
            advice = _IN_PLACE if _USES_NONE.search(answer.source) else ""  # another None may be in what was given
            advice = _NO_GRADIENT if line and ".grad" in answer.source.splitlines()[line - 1] else advice
        advice = _NON_LEAF if "can't optimize a non-leaf Tensor" in first.message else advice
        return "failed", Finding(first.code, text.rstrip(": ") + where, first.rank, line, advice), lines[1:]
    return "crashed", Finding(error.code, text, first.rank), lines[1:]


def _mutated(rank: int, result: dict[str, Any], inputs: dict[str, Any]) -> Finding:
    """`result`: as `run_answer` returns it."""
    names = [str(name) for name in result["changed"]]
    name = names[0]
    text = f"rank {rank} changed what it was given: {', '.join(names)}"
    if finding := difference(inputs.get(name), result.get("now", inputs.get(name)), 0, 0, name):
        how = finding.text.replace("are wrong", "changed").replace("should be", "was").replace("should have", "had")
        text += f" ({how})"
    advice = f"To find the line, print {name} on rank {rank} after each line of yours. "
    advice += f"Work on a copy ({_copy(name, inputs.get(name))}): the caller still needs what it gave."
    if "clone" in advice:
        advice += f" `a = {name}` is no copy, and `a += b` changes the tensor itself; `a = a + b` does not."
    return Finding("DTL-MUTATED", text, rank, None, advice)


def _copy(name: str, value: Any) -> str:
    """How such an input is copied, as the learner would write it."""
    if isinstance(value, torch.Tensor):
        return f"`{name}.clone()`"
    if isinstance(value, list | dict):
        parts = list(value.values() if isinstance(value, dict) else value)
        if isinstance(value, list) and parts and all(isinstance(part, torch.Tensor) for part in parts):
            return f"`[part.clone() for part in {name}]`"
        deep = any(isinstance(part, list | dict | torch.Tensor) for part in parts)
        return f"`copy.deepcopy({name})`" if deep else f"`{type(value).__name__}({name})`"
    return "of it"


def _line_in(failure: Failure, answer: Answer) -> int | None:
    """The innermost line of the learner's file in a traceback."""
    lines = re.findall(rf'File "{re.escape(answer.file)}", line (\d+)', failure.traceback)
    return int(lines[-1]) if lines else None
