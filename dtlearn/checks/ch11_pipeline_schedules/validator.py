"""ch11.validator: valid schedules by chance, and what is made of them: actions lost, doubled, moved, out of order.

Mistakes are told by what they lead to: `_wrong_validators`.
"""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._faulty import faulty, large, valid
from ._jobs import Job, shuffled
from ._schedules import as_tuples, is_orders, needs, play, text_of
from ._wrong_validators import LISTS, WRONG, find


def inputs(case: Case) -> Given:
    """Valid schedules, one of each kind of fault, and for each mistake one where it shows."""
    g = case.generator()
    jobs = [valid(g, k) for k in range(3)]
    jobs += [faulty(g, kind) for kind in ("lose", "double", "move", "copy", "strange", "stuck")]
    found = [find(job) for job in jobs]
    for mistake in WRONG:
        shows = any(find(job, mistake) != right for job, right in zip(jobs, found, strict=True))
        while not shows:
            job = faulty(g, "any")
            right = find(job)
            if shows := find(job, mistake) != right:
                jobs.append(job)
                found.append(right)
    return shuffled(case, jobs + large(g), g)


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit

    def actions(value: Any) -> Any:
        return sorted(value, key=lambda one: (len(str(one)), str(one))) if isinstance(value, set | frozenset) else value

    notes: Any = []
    for job in jobs:
        orders = [[tuple(action) for action in order] for order in job["orders"]]
        try:
            with ProcessorLimit(0.5):  # seconds; an answer takes some milliseconds
                found = answer(orders, list(job["placement"]), job["num_microbatches"], tuple(job["ops"]))
        except Endless as error:
            return {"ended": notes, "line": error.line}
        notes.append({key: actions(value) for key, value in found.items()} if isinstance(found, dict) else found)
    return {"ended": notes, "line": None}


def _endless(jobs: list[Job], ended: int, line: int | None) -> Finding:
    """Of a job that did not end: who can go on in it."""
    found = [find(job) for job in jobs[: ended + 1]]
    now = found[-1]
    waits = [w for rank in range(len(jobs[ended]["orders"])) if (w := _waits(jobs[ended], rank))]
    if any(now[key] for key in LISTS):
        text = "here the first four lists have something in them, and nothing is to be played"
    elif not waits:
        text = "here every rank can come to its end: your function lets an action wait for what it does not need"
    else:
        text = f"here {'; '.join(waits)}"
        if not any(any(one["stuck"]) for one in found[:-1]):
            text += ". A loop that plays the orders has to stop after a pass in which no rank got on"
        text += ". A loop that follows who waits for whom has to stop at a rank where it was before"
    return Finding("DTL-LOOP", f"your function does not end; {text}. One case: {_told(jobs[ended])}", 0, line)


def _told(job: Job) -> str:
    rows = "; ".join(f"rank {r}: {' '.join(map(text_of, order)) or 'nothing'}" for r, order in enumerate(job["orders"]))
    text = f"stages {len(job['placement'])}" + ", rank of each " + " ".join(map(str, job["placement"]))
    return f"{text}, {job['num_microbatches']} micro-batches, ops {' '.join(job['ops'])} ({rows})"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs, made = given[0]["jobs"], list[Any]()
    if (ended := len(got[0]["ended"])) < len(jobs):
        return _endless(jobs, ended, got[0]["line"])
    keys = list(find(jobs[0]))
    for job, found in zip(jobs, got[0]["ended"], strict=True):
        if not isinstance(found, dict) or set(found) != set(keys):
            kind = f"a dict with the keys {list(found)}" if isinstance(found, dict) else type(found).__name__
            code = "DTL-VALUE-NONE" if found is None else "DTL-VALUE-SHAPE"
            return Finding(code, f"{_told(job)}: a dict with the keys {', '.join(keys)} is asked; this is {kind}")
        for key in LISTS:
            if why := is_orders([found[key]], 1):
                return Finding("DTL-VALUE-TYPE", f"{_told(job)}: {key!r}: {why}")
        stuck, circle = found["stuck"], found["circle"]
        if not isinstance(stuck, list) or len(stuck) != len(job["orders"]) or not isinstance(circle, list):
            text = f"'stuck' has an entry for each rank, and 'circle' is a list; they are {stuck} and {circle}"
            return Finding("DTL-VALUE-SHAPE", f"{_told(job)}: {text}")
        lists = {key: sorted(as_tuples([found[key]])[0]) for key in LISTS}
        waiting = [tuple(a) if isinstance(a, list) else a for a in stuck]
        made.append({**lists, "stuck": waiting, "circle": circle})
    for job, found in zip(jobs, made, strict=True):
        told = any(x is not None for x in found["stuck"]) or found["circle"]
        if told and any(find(job)[key] for key in LISTS):
            text = "ranks are told as stuck, or in a circle, though one of the first four lists has something in it"
            return Finding("DTL-VALUE-RUN-ANYWAY", f"{text}. One case: {_told(job)}")
    off = [(job, found) for job, found in zip(jobs, made, strict=True) if found != find(job)]
    off.sort(key=lambda one: sum(map(len, one[0]["orders"])))  # the shortest is told
    if not off:
        return None
    for mistake, (code, text) in WRONG.items():
        if all(found == find(job, mistake) for job, found in off):
            return Finding(code, f"{text}. One case: {_told(off[0][0])}")
    return _difference(*off[0])


_CODES = {key: f"DTL-VALUE-{key.upper()}-ACTIONS" for key in LISTS}
_CODES |= {"stuck": "DTL-VALUE-STUCK", "circle": "DTL-VALUE-CIRCLE"}


def _difference(job: Job, found: dict[str, list[Any]]) -> Finding:
    """What is wrong with one job, if no mistake explains them all."""
    for key, want in find(job).items():
        have = found[key]
        if have == want:
            continue
        if key in LISTS:
            extra, left = [a for a in have if have.count(a) > want.count(a)], [a for a in want if a not in have]
            said = [f"{text_of(left[0])} should be there and is not"] if left else []
            if extra:
                what = f"is there {have.count(extra[0])} times" if extra[0] in want else "is there and should not be"
                said.append(f"{text_of(extra[0])} {what}")
            return Finding(_CODES[key], f"{key!r}: {', '.join(said)}. {_told(job)}")
        waits = [_waits(job, rank) for rank in range(len(job["orders"]))]
        if key == "stuck":
            rank = next(r for r, (a, b) in enumerate(zip(want, have, strict=True)) if a != b)
            a, b = (text_of(x) if isinstance(x, tuple) else str(x) for x in (want[rank], have[rank]))
            reason = waits[rank] or "it comes to the end of its order, if each rank is asked again when others got on"
            return Finding(_CODES[key], f"'stuck' of rank {rank} should be {a}; it is {b}: {reason}. {_told(job)}")
        text = f"'circle' should be {want}; it is {have}: {'; '.join(filter(None, waits))}"
        return Finding(_CODES[key], f"{text}. {_told(job)}")
    raise AssertionError("nothing is wrong")


def _waits(job: Job, rank: int) -> str:
    """For what a stuck rank waits, in words; "" if it is not stuck."""
    orders, placement = job["orders"], job["placement"]
    played = play(orders, placement, lambda action: 1)
    if played.at[rank] == len(orders[rank]):
        return ""
    action = orders[rank][played.at[rank]]
    left = [n for n in needs(action, len(placement)) if not any(a in played.end for a in n)]
    texts = [f"{n[0][0]}{action[1] if len(n) > 1 else n[0][1]}{n[0][2]} of rank {placement[n[0][0]]}" for n in left]
    return f"rank {rank} waits at {text_of(action)} for {' and '.join(texts)}"


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    text = "a stage or a micro-batch may not exist, also with a negative number; a rank may have nothing to do, hold "
    return f"{MAY_HELP}{text}several stages, or wait for itself"


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")], seconds=5.0)
