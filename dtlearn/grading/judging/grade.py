"""Grades one answer to one exercise: every case of its check at every world size, then one verdict."""

import platform
import secrets
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from ...course import Exercise
from ...runtime.machine.isolation import MEANING, Isolation
from ...runtime.machine.patience import TO_GRADE, Patience
from ...runtime.record.record import Record
from ...runtime.words import listed
from ...version import VERSION
from ..check import Check, Finding, Given
from ..formula import evaluate
from ..verdict import Outcome, Result, Verdict, first_fault
from .judge_cases import Judged, judge_all, judge_case
from .ladder import CaseValues, named
from .run_case import Answer, CaseRanks

OnResult = Callable[[Result, int, int], None]  # a result, how many are done, of how many
_GENERIC = {"DTL-VALUE", "DTL-RAISED", "DTL-VALUE-SHAPE"}


def grade(
    exercise: Exercise,
    check: Check | Sequence[tuple[Check, bool]],
    answer: Answer,
    *,
    seed: int | None = None,
    world_sizes: Iterable[int] | None = None,
    progress: OnResult = lambda result, done, total: None,
    seconds: float = TO_GRADE,
    stop: Callable[[], bool] = lambda: False,
    isolation: Isolation | None = None,
    seen: Callable[[Result, Record], None] = lambda result, record: None,
) -> Verdict:
    """Judge an answer. Whatever it did there is a verdict; what goes wrong in the grader itself is the state "error".

    Args:
        check: how it is judged; or several checks, each with whether it is hidden from the learner.
        seed: for the inputs; None: a new one. The same seed gives the same verdict.
        world_sizes: default: those of the manifest.
        progress: told of each result as it comes.
        seconds: for everything; cases that do not fit in are skipped, and said to be. Time without a processor does not
            count, here as in each case; a case that the machine was too busy for is left out, and not judged.
        stop: asked before each case; True: skip the rest.
        isolation: how the ranks are shut in; None: level 1, which is for code that you trust.
        seen: told of each run that took place, with its record.
    """
    begun, patience = time.monotonic(), Patience(seconds)
    torch.set_num_threads(1)  # helper threads of this process would wait for work on the processors that ranks need
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    sizes = list(world_sizes or exercise.world_sizes)
    checks = [(check, False)] if isinstance(check, Check) else list(check)
    isolation = isolation or Isolation()
    if isolation.level == 2:  # what an answer may not use it cannot see, so that no import of it can hide
        ruled_out = [folder for c, _ in checks for rule in c.reads for folder in getattr(rule, "folders", ())]
        isolation = replace(isolation, hidden=(*isolation.hidden, *ruled_out))
    together = [(c, hidden, c.all_cases(size, seed)) for size in sizes for c, hidden in checks]
    total = sum(len(cases) for _, _, cases in together)
    results: list[Result] = []
    tier_limits: list[tuple[Result, int]] = []
    returned: list[tuple[Check, CaseValues]] = []
    if finding := _read(answer, [rule for c, _ in checks for rule in c.reads]):
        results = [replace(finding, case=c.name, world_size=c.world_size) for _, _, cases in together for c in cases][
            :1
        ]
        together = []
    with CaseRanks(isolation) as ranks:
        for check, hidden, cases in together:
            skip = _skip(results, stop() or patience.over())
            together_judged = {} if skip else judge_all(exercise.id, check, cases, answer, ranks)
            proven = False  # a case of these failed on ranks of its own, too
            for number, case in enumerate(cases):
                skip = _skip(results, stop() or patience.over()) if number else skip
                one = together_judged.get(case.name)
                if number and results[-number].state == "not-attempted":  # the first one; the others would say the same
                    one = Judged(replace(results[-number], case=case.name))
                elif skip:
                    one = Judged(Result(case.name, case.world_size, "skipped", *skip))
                elif one is None or (one.result.state != "passed" and not proven):
                    alone = judge_case(exercise.id, check, case, answer, ranks)
                    proven = one is not None and alone.result.code == one.result.code
                    one = alone
                result = replace(one.result, hidden=hidden)
                if one.evidence is not None:
                    seen(result, one.evidence.record)
                if one.values and (one.has_wrong_values or result.state == "passed"):
                    values = CaseValues(len(results), case, one.given, one.values, one.has_wrong_values)
                    returned.append((check, values))
                results.append(result)
                tier_limits.append((result, one.payload))
                progress(result, len(results), total)
    results = _partly_written(results)
    for check, _ in checks:
        results = named(check, [values for c, values in returned if c is check], results)
    verdict = _verdict(exercise, results, tier_limits, seed, time.monotonic() - begun)
    return replace(verdict, isolation=f"level {isolation.level}: {MEANING[isolation.level]}")


def _skip(earlier: list[Result], over: bool) -> tuple[str, str] | None:
    """Why a case is not run: a code, and words; None if it is."""
    if over or any(r.code == "DTL-LOAD" for r in earlier):
        return "DTL-SKIPPED-TIME", "the time limit of the whole grading was reached"
    slow = [r for r in earlier if r.state == "timeout"]
    if slow:
        return "DTL-SKIPPED", f"not run: {slow[0].case!r} with {slow[0].world_size} ranks did not end in time"
    return None


def _partly_written(results: list[Result]) -> list[Result]:
    """If some cases come to the line of the stub and others do not, those that do have failed; a stub is told once."""
    if {r.state for r in results} <= {"not-attempted", "skipped"}:
        return results[:1] if any(r.state == "not-attempted" for r in results) else results
    text = "not written for this yet: the line of the stub is reached"
    return [replace(r, state="failed", headline=text) if r.state == "not-attempted" else r for r in results]


def _read(answer: Answer, rules: Sequence[Callable[[str], Finding | None]]) -> Result | None:
    """What is wrong with its text: it does not compile, or breaks one of these rules."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the learner's own text, to no console
            compile(answer.source, answer.file, "exec", dont_inherit=True)
            first = next((finding for rule in rules if (finding := rule(answer.source))), None)
        return Result("", 0, "failed", first.code, first.text, line=first.line) if first else None
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:  # the last two: brackets without end
        line = getattr(error, "lineno", None)
        text = f"the file is no valid Python: {getattr(error, 'msg', None) or str(error) or type(error).__name__}"
        text += f", line {line}" if line else ""
        # Not `error.text`: Python reads it from the file of that name, which may hold another text than the answer.
        lines = answer.source.splitlines()
        quoted = lines[line - 1].rstrip() if line and line <= len(lines) else ""
        return Result("", 0, "failed", "DTL-SYNTAX", text, (f"  {quoted}",) if quoted else (), line=line)


def _verdict(
    exercise: Exercise, results: list[Result], payloads: list[tuple[Result, int]], seed: int, seconds: float
) -> Verdict:
    results = _name_lucky_sizes(results)
    fault = first_fault(results)
    state: Outcome = fault.state if fault else ("passed" if results else "error")
    if state == "passed" and any(r.state == "skipped" for r in results):
        state = "skipped"  # what was not run did not pass
    if any(r.state == "error" for r in results):
        state = "error"
    tier, notes = _tier(exercise, payloads) if state == "passed" else ("", ())
    return Verdict(
        *(exercise.id, exercise.title, state, _score(exercise.points, results), exercise.points, tier, tuple(results)),
        seconds=seconds,
        seed=seed,
        versions={"python": platform.python_version(), "torch": torch.__version__, "dtlearn": VERSION},
        notes=notes,
    )


def _score(points: float, results: list[Result]) -> float:
    """Points for the share of cases that pass. One rank alone earns nothing where there is anything else: doing nothing
    is often right there. But its faults count."""
    several = any(r.world_size > 1 for r in results)
    counted = [r for r in results if not several or r.world_size > 1 or r.state != "passed"]
    if not counted or any(r.state in ("not-attempted", "error") for r in results):
        return 0.0
    return round(points * sum(r.state == "passed" for r in counted) / len(counted), 4)


def _name_lucky_sizes(results: list[Result]) -> list[Result]:
    """Wrong at some world sizes only, without a better name: say at which."""
    failed = {r.case for r in results if r.state not in ("passed", "skipped")}
    tried = {r.world_size for r in results if r.case in failed}  # a case may be of some world sizes only
    good = sorted(tried - {r.world_size for r in results if r.state != "passed"})
    bad = sorted({r.world_size for r in results if r.state not in ("passed", "skipped")})
    if not bad or not [size for size in good if size > 1]:
        return results
    sizes = f"right with {listed(good)} ranks, wrong with {listed(bad)}"
    vague = [r for r in results if r.state == "failed" and r.code in _GENERIC]
    return [replace(r, code="DTL-WS", headline=f"{sizes}: {r.headline}") if r in vague else r for r in results]


def _tier(exercise: Exercise, payloads: list[tuple[Result, int]]) -> tuple[str, tuple[str, ...]]:
    """How good a correct answer is, by the budgets of the manifest, and what the next tier asks for."""
    reached = "correct"
    for tier in ("good", "optimal"):
        limited = {quantity: limits[tier] for quantity, limits in exercise.budget.items() if tier in limits}
        missed = []
        for quantity, formula in limited.items():
            for result, payload in payloads:
                limit = evaluate(str(formula), N=result.world_size, n=payload)
                used = getattr(result, quantity)
                if used is not None and used > limit:
                    at = f"with {result.world_size} ranks ({result.case})"
                    unit = quantity.removesuffix("s") if limit == 1 else quantity
                    bound = f"at most {limit:,.12g} {unit} per rank {at}"
                    if quantity == "bubble":
                        near = " (just above the best known)" * (tier == "optimal")
                        bound = f"a mean bubble of at most {limit:.12g}{near}"
                    missed.append(f"{tier}: {bound}; yours: {used:,}")
        if missed:
            return reached, (missed[-1],)
        reached = tier if limited else reached
    return reached, ()


def payload_bytes(given: Given, name: str) -> int:
    """The largest input of that name over the ranks, in bytes: the usual n of a budget."""
    return max(int(i[name].numel() * i[name].element_size()) for i in given)
