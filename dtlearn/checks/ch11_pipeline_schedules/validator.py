"""ch11.validator: valid schedules by chance, and what is made of them: actions lost, doubled, moved, out of order.

What a wrong answer leads to is found with its mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._faulty import faulty, large, valid
from ._jobs import shuffled
from ._schedules import Action, as_tuples, every, is_orders, needs, play, text_of

Job = dict[str, Any]
_LISTS = ("unknown", "missing", "repeated", "misplaced")
_WRONG = {  # of each mistake: its code, and what is said of it
    "counts within a rank": (
        "DTL-VALUE-REPEATED-ACTIONS",
        "an action that two ranks do is not found: count over all ranks together",
    ),
    "repeated unknown": (
        "DTL-VALUE-REPEATED-ACTIONS",
        "an unknown action that stands there twice is told as repeated, too",
    ),
    "moved is missing": (
        "DTL-VALUE-MISSING-ACTIONS",
        "an action that stands only with another rank is told as missing: that is misplaced, and nothing else",
    ),
    "moved is not misplaced": (
        "DTL-VALUE-MISPLACED-ACTIONS",
        "an action that its own rank does as well is not told as misplaced where another rank does it",
    ),
    "negative stages": (
        "DTL-VALUE-UNKNOWN-ACTIONS",
        "stage -1 is taken for a stage: placement[-1] is the last one's rank, and no error",
    ),
    "negative micro-batches": ("DTL-VALUE-UNKNOWN-ACTIONS", "micro-batch -1 is taken for one: they count from 0"),
    "unknown ops": ("DTL-VALUE-UNKNOWN-ACTIONS", "an op that is not among `ops` is not told as unknown"),
    "no own forward": (
        "DTL-VALUE-DEPENDENCY",
        "a B, or an I, is taken for ready before the F of its own stage is done",
    ),
    "no stage after": (
        "DTL-VALUE-DEPENDENCY",
        "a B, or an I, does not wait for that of the next stage, from which its gradient comes",
    ),
    "next forward": (
        "DTL-VALUE-DEPENDENCY",
        "a B, or an I, waits for the F of the next stage: it needs the B, or the I, of it",
    ),
    "no stage before": ("DTL-VALUE-DEPENDENCY", "an F does not wait for that of the stage before"),
    "free weights": ("DTL-VALUE-DEPENDENCY", "a W does not wait for the I of its stage and micro-batch"),
    "weights after forward": (
        "DTL-VALUE-DEPENDENCY",
        "a W waits for the F of its stage only: it needs the gradients that I makes",
    ),
    "whole needs weights": (
        "DTL-VALUE-DEPENDENCY",
        "an I waits for the W of the next stage: it needs the I of it only, and that is why the backward is split",
    ),
    "order within ranks only": (
        "DTL-VALUE-DEPENDENCY",
        "only what a rank needs of itself is looked at: ranks wait for other ranks, too",
    ),
    "all stuck": (
        "DTL-VALUE-CIRCLE",
        "ranks are in the circle that only wait for it: following whom they wait for does not lead back to them",
    ),
    "not itself": (
        "DTL-VALUE-CIRCLE",
        "a rank that waits for an action further down in its own order waits for itself: that is a circle",
    ),
    "pairs": ("DTL-VALUE-CIRCLE", "circles of more than two ranks are not found"),
    "first circle": ("DTL-VALUE-CIRCLE", "one circle is found where there are several"),
    "one need": ("DTL-VALUE-CIRCLE", "a rank may wait for two ranks at once, and only one of them is followed"),
}


def find(job: Job, mistake: str = "") -> dict[str, list[Any]]:
    """What is wrong with a schedule, with one mistake of `_WRONG`."""
    orders, placement, ops, m = job["orders"], job["placement"], job["ops"], job["num_microbatches"]
    wanted = set(every(len(placement), ops, m))
    if mistake == "negative stages":
        wanted |= {(-1, op, k) for op in ops for k in range(m)}
    if mistake == "negative micro-batches":
        wanted |= {(s, op, -1) for s in range(len(placement)) for op in ops}
    counts = Counter(a for order in orders for a in order)
    most = counts if mistake != "counts within a rank" else {a: max(o.count(a) for o in orders) for a in counts}
    known = {a for a in counts if a in wanted}
    at_home = {a for rank, order in enumerate(orders) for a in order if a in known and placement[a[0]] == rank}
    elsewhere = {a for rank, order in enumerate(orders) for a in order if a in known and placement[a[0]] != rank}
    found: dict[str, list[Any]] = {
        "unknown": sorted(set(counts) - wanted),
        "missing": sorted(a for a in wanted if min(a[0], a[2]) >= 0 and a not in counts),
        "repeated": sorted(a for a in (counts if mistake == "repeated unknown" else known) if most[a] > 1),
        "misplaced": sorted(elsewhere - at_home if mistake == "moved is not misplaced" else elsewhere),
    }
    if mistake == "moved is missing":
        found["missing"] = sorted(a for a in wanted if a not in at_home)
    if mistake == "unknown ops":
        found["unknown"] = [a for a in found["unknown"] if a[1] in ops]
    found |= {"stuck": [None] * len(orders), "circle": []}
    if any(found[key] for key in _LISTS):
        return found
    needed = _needs(mistake, placement)
    played = play(orders, placement, lambda action: 1, needed=needed)
    waits: list[list[int]] = [[] for _ in orders]
    for rank, order in enumerate(orders):
        if played.at[rank] < len(order):
            found["stuck"][rank] = action = order[played.at[rank]]
            left = [n for n in needed(action, len(placement)) if not any(a in played.end for a in n)]
            waits[rank] = [placement[n[0][0]] for n in left]
    found["circle"] = _circle(waits, mistake)
    return found


def _needs(mistake: str, placement: list[int]) -> Callable[[Action, int], Any]:
    def needed(action: Action, num_stages: int) -> Any:
        stage, op, k = action
        right: list[Any] = [*needs(action, num_stages)]
        if op in "BI":
            right = right[1:] if mistake == "no own forward" else right
            right = right[:1] if mistake == "no stage after" else right
            if mistake == "next forward" and len(right) > 1:
                right = [right[0], ((stage + 1, "F", k),)]
            if mistake == "whole needs weights" and op == "I" and len(right) > 1:
                right = [right[0], ((stage + 1, "W", k),)]
        if op == "F" and mistake == "no stage before":
            right = []
        if op == "W" and mistake in ("free weights", "weights after forward"):
            right = [((stage, "F", k),)] if mistake == "weights after forward" else []
        if mistake == "order within ranks only":
            right = [n for n in right if placement[n[0][0]] == placement[stage]]
        return right

    return needed


def _circle(waits: list[list[int]], mistake: str = "") -> list[int]:
    if mistake == "all stuck":
        return [rank for rank, ranks in enumerate(waits) if ranks]
    if mistake == "one need":
        waits = [ranks[-1:] for ranks in waits]
    if mistake == "pairs":
        return [r for r, ranks in enumerate(waits) if r in ranks or any(r in waits[other] for other in ranks)]
    reached = [set(ranks) - ({rank} if mistake == "not itself" else set()) for rank, ranks in enumerate(waits)]
    for _ in waits:
        reached = [ranks.union(*(reached[r] for r in ranks)) for ranks in reached]
    inside = [rank for rank, ranks in enumerate(reached) if rank in ranks]
    return [r for r in inside if r in reached[inside[0]]] if mistake == "first circle" else inside


def inputs(case: Case) -> Given:
    """Valid schedules, one of each kind of fault, and for each mistake one where it shows."""
    g = case.generator()
    jobs = [valid(g, k) for k in range(3)]
    jobs += [faulty(g, kind) for kind in ("lose", "double", "move", "copy", "strange", "stuck")]
    for mistake in _WRONG:
        while all(find(job, mistake) == find(job) for job in jobs):
            jobs.append(faulty(g, "any"))
            if find(jobs[-1], mistake) == find(jobs[-1]):
                jobs.pop()
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
    if any(now[key] for key in _LISTS):
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
        for key in _LISTS:
            if why := is_orders([found[key]], 1):
                return Finding("DTL-VALUE-TYPE", f"{_told(job)}: {key!r}: {why}")
        stuck, circle = found["stuck"], found["circle"]
        if not isinstance(stuck, list) or len(stuck) != len(job["orders"]) or not isinstance(circle, list):
            text = f"'stuck' has an entry for each rank, and 'circle' is a list; they are {stuck} and {circle}"
            return Finding("DTL-VALUE-SHAPE", f"{_told(job)}: {text}")
        lists = {key: sorted(as_tuples([found[key]])[0]) for key in _LISTS}
        waiting = [tuple(a) if isinstance(a, list) else a for a in stuck]
        made.append({**lists, "stuck": waiting, "circle": circle})
    for job, found in zip(jobs, made, strict=True):
        told = any(x is not None for x in found["stuck"]) or found["circle"]
        if told and any(find(job)[key] for key in _LISTS):
            text = "ranks are told as stuck, or in a circle, though one of the first four lists has something in it"
            return Finding("DTL-VALUE-RUN-ANYWAY", f"{text}. One case: {_told(job)}")
    off = [(job, found) for job, found in zip(jobs, made, strict=True) if found != find(job)]
    off.sort(key=lambda one: sum(map(len, one[0]["orders"])))  # the shortest is told
    if not off:
        return None
    for mistake, (code, text) in _WRONG.items():
        if all(found == find(job, mistake) for job, found in off):
            return Finding(code, f"{text}. One case: {_told(off[0][0])}")
    return _difference(*off[0])


_CODES = {key: f"DTL-VALUE-{key.upper()}-ACTIONS" for key in _LISTS}
_CODES |= {"stuck": "DTL-VALUE-STUCK", "circle": "DTL-VALUE-CIRCLE"}


def _difference(job: Job, found: dict[str, list[Any]]) -> Finding:
    """What is wrong with one job, if no mistake explains them all."""
    for key, want in find(job).items():
        have = found[key]
        if have == want:
            continue
        if key in _LISTS:
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
