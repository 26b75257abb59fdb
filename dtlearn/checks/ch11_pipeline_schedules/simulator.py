"""ch11.simulator: known schedules and others by chance, with times by chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._jobs import Job, numbers, shuffled
from ._schedules import Action, Orders, any_valid, as_tuples, needs, one_f_one_b, text_of
from ._wrong_simulators import WAYS, play_job, right


def inputs(case: Case) -> Given:
    g = case.generator()
    number = numbers(g)

    def job(orders: Orders, placement: list[int], transfer: int) -> Job:
        times = {op: [number(1, 9) for _ in placement] for op in "FIW"}
        times["B"] = [number(2, 18) for _ in placement]
        return {"orders": orders, "placement": placement, "times": times, "transfer": transfer}

    def chance(placement: list[int], ops: str, m: int, transfer: int) -> Job:
        orders = any_valid(placement, ops, m, g)
        if ops == "FIW":  # one stage has the whole backward pass
            whole = number(0, len(placement))
            for order in orders:
                kept = [a for a in order if a[0] != whole or a[1] != "W"]
                order[:] = [(a[0], "B", a[2]) if a[0] == whole and a[1] == "I" else a for a in kept]
        return job(orders, placement, transfer)

    # Ws are put off here: whether an I or a W frees shows in the peaks, with every seed.
    split = ["0F0 0F1 0I0 0F2 0W0 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"]
    gpipe = [[(r, op, k) for op in "FB" for k in range(3)] for r in range(2)]
    jobs = [
        job(gpipe, [0, 1], 0),
        job([[(int(a[0]), a[1], int(a[2])) for a in order.split()] for order in split], [0, 1], number(1, 5)),
        job(one_f_one_b(3, 4), [0, 1, 2], number(1, 5)),
        job(one_f_one_b(1, 3), [0], 4),
        job(one_f_one_b(4, 2), [0, 1, 2, 3], 2),
        chance([0, 1, 1, 0], "FIW", 3, number(3, 8)),
        chance([0, 1, 0, 1], "FB", 3, number(3, 8)),
        chance([1, 2, 0], "FIW", 3, 1),
        chance([0, 0, 1], "FB", 2, number(1, 5)),
        chance([2, 0, 1, 0, 2], "FIW", 2, 0),
        job(one_f_one_b(8, number(9, 14)), [*range(8)], number(3, 8)),
    ]
    return shuffled(case, jobs, g)


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit

    notes: Any = []
    for job in jobs:
        orders = [[tuple(action) for action in order] for order in job["orders"]]
        try:
            with ProcessorLimit(0.5):  # seconds; an answer takes some milliseconds
                notes.append(answer(orders, list(job["placement"]), dict(job["times"]), job["transfer"]))
        except Endless as error:
            return {"ended": notes, "line": error.line}
    return {"ended": notes, "line": None}


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs, made = given[0]["jobs"], got[0]["ended"]
    if len(made) < len(jobs):
        return _endless(jobs, len(made), got[0]["line"])
    wants = [right(job) for job in jobs]
    for job, want, have in zip(jobs, wants, made, strict=True):
        if (found := difference(want, have, 0, math.inf)) and found.code != "DTL-VALUE":
            return Finding(found.code, f"{found.text}. {_told(job)}", advice=found.advice)
    for key, ways in WAYS.items():
        values = [(job, want[key], have[key]) for job, want, have in zip(jobs, wants, made, strict=True)]
        off = [one for one in values if one[1] != one[2]]
        if not off:
            continue
        job, want, have = min(off, key=lambda one: sum(map(len, one[0]["orders"])))
        text = f"{key!r} should be {want}; it is {have}"
        for code, words, way in ways:
            if all(way(j) == value for j, _, value in values):
                return Finding(f"DTL-VALUE-{code}", f"{text}: {words}. One case: {_told(job)}")
        code = {"makespan": "MAKESPAN", "idle": "IDLE", "peak": "LIVE"}[key]
        advice = (
            "Was every action played? Go over the ranks until all have come to their end." if code == "MAKESPAN" else ""
        )
        return Finding(f"DTL-VALUE-{code}", f"{text}. One case: {_told(job)}", advice=advice)
    return None


_ENDLESS = {
    "first": "the F of stage 0 waits for a stage before it",
    "last": "the B or I of the last stage waits for a stage after it",
    "before": "a B or an I waits for that of the stage before: its gradient comes from the next stage",
    "same": "a B or an I waits for the same op of the next stage, which may have the other one",
    "whole": "an I waits for the B of the next stage, which may have an I",
    "weights": "a W waits for a B: it needs the I of its stage",
}


def _waits(way: str) -> Callable[[Action, int], Any]:
    """What an action waits for by one of the mistakes with which no end is found."""

    def needed(action: Action, num_stages: int) -> Any:
        stage, op, k = action
        if op == "F":
            return [((stage - 1, "F", k),)] if way == "first" else needs(action, num_stages)
        if op == "W":
            return [((stage, "B", k),)] if way == "weights" else needs(action, num_stages)
        own, *after = needs(action, num_stages)
        if way in ("same", "whole"):
            after = [((stage + 1, op if way == "same" else "B", k),) for _ in after]
        elif way == "last":
            after = [((stage + 1, "B", k), (stage + 1, "I", k))]
        elif way == "before":
            after = [((stage - 1, "B", k), (stage - 1, "I", k))] if stage else []
        return [own, *after]

    return needed


def _endless(jobs: list[Job], ended: int, line: int | None) -> Finding:
    """What the first job that did not end has and those that did have not."""

    def ends(job: Job, way: str) -> bool:
        return play_job(job, _waits(way)).at == [len(order) for order in job["orders"]]

    ways = [way for way in _ENDLESS if all(ends(j, way) == (k < ended) for k, j in enumerate(jobs[: ended + 1]))]
    text = "your function does not end, where every rank can come to its end: an action waits for what never comes"
    if ways:
        text += f". That is so if {', or if '.join(_ENDLESS[way] for way in ways)}"
    return Finding("DTL-LOOP", f"{text}. One case: {_told(jobs[ended])}", 0, line)


def _told(job: Job) -> str:
    """A job with the right start and end of each action."""
    played = play_job(job)
    rows = [
        ", ".join(f"{text_of(a)} {played.start[a]}-{played.end[a]}" for a in as_tuples([o[:16]])[0])
        + ", ..." * (len(o) > 16)
        for o in job["orders"]
    ]
    text = "; ".join(f"rank {r}: {row}" for r, row in enumerate(rows))
    return f"rank of each stage {job['placement']}, transfer {job['transfer']}; right are, with start and end, {text}"


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    text = "what an action needs may be done by a rank of a higher or a lower number; a stage may have B where another "
    return f"{MAY_HELP}{text}has I and W"


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")], seconds=5.0)
