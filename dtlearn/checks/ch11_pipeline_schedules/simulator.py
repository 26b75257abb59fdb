"""ch11.simulator: known schedules and others by chance, with times by chance; what wrong answers make of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._jobs import numbers, shuffled
from ._schedules import Action, Orders, Played, any_valid, as_tuples, needs, one_f_one_b, peaks, play, text_of

Job = dict[str, Any]


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


def _busy(job: Job) -> list[int]:
    return [sum(job["times"][op][s] for s, op, _ in order) for order in job["orders"]]


def _play(job: Job, needed: Any = needs, delay: Any = None, times: Any = None) -> Played:
    def transfer(a: Action, rank: int) -> int:
        return int(job["transfer"] * (job["placement"][a[0]] != rank))

    cost = times or (lambda a: job["times"][a[1]][a[0]])
    return play(job["orders"], job["placement"], cost, delay or transfer, needed)


def _results(job: Job, played: Played) -> dict[str, Any]:
    idle = [played.makespan - busy for busy in _busy(job)]
    return {"makespan": played.makespan, "idle": idle, "peak": peaks(job["orders"])}


def right(job: Job) -> dict[str, Any]:
    return _results(job, _play(job))


def _alone(action: Action, num_stages: int) -> Any:
    """A backward pass that needs only what its own stage did."""
    return needs(action, num_stages)[:1] if action[1] in "BI" else needs(action, num_stages)


def _late(action: Action, num_stages: int) -> Any:
    """A backward pass that waits for the W of the next stage, where it is split."""
    stage, _, k = action
    return [n if len(n) == 1 else ((stage + 1, "B", k), (stage + 1, "W", k)) for n in needs(action, num_stages)]


def _blocking(job: Job) -> Played:
    """The rank is busy while its results travel."""
    placement = job["placement"]

    def cost(a: Action) -> int:
        to = a[0] + 1 if a[1] == "F" else a[0] - 1
        travels = a[1] != "W" and 0 <= to < len(placement) and placement[to] != placement[a[0]]
        return int(job["times"][a[1]][a[0]] + job["transfer"] * travels)

    return _play(job, delay=lambda a, rank: 0, times=cost)


def _ends(job: Job, first: bool) -> list[int]:
    """Idle time up to each rank's last action; `first`: from its first action on."""
    played = _play(job)
    spans = [played.end[o[-1]] - (played.start[o[0]] if first else 0) for o in job["orders"]]
    return [span - busy for span, busy in zip(spans, _busy(job), strict=True)]


def _last_of(job: Job, rank: int) -> int:
    return _play(job).end[job["orders"][rank][-1]]


def _most_microbatches(job: Job) -> list[int]:
    """The most micro-batches of which a rank holds anything."""
    found = []
    for order in job["orders"]:
        live, most = set[Any](), 0
        for s, op, k in order:
            live = live | {(s, k)} if op == "F" else live - {(s, k)} if op in "BW" else live
            most = max(most, len({k for _, k in live}))
        found.append(most)
    return found


def _ties(job: Job) -> list[int]:
    """Peaks, if what starts is counted before what ends at the same time."""
    played, found = _play(job), []
    for order in job["orders"]:
        changes = [(played.start[a], 0) for a in order if a[1] == "F"] + [
            (played.end[a], 1) for a in order if a[1] in "BW"
        ]
        lives = [1 - 2 * ends for _, ends in sorted(changes)]
        found.append(max(itertools.accumulate(lives)))
    return found


Way = Callable[[Job], Any]
_DELAYS: dict[str, Callable[[Job], Any]] = {
    "`transfer` is left out": lambda j: lambda a, rank: 0,
    "`transfer` is added on the same rank, too: there a result is at hand at once": (
        lambda j: lambda a, rank: j["transfer"]
    ),
    "`transfer` is added to results of forward passes only: gradients travel, too": (
        lambda j: lambda a, rank: j["transfer"] * (j["placement"][a[0]] != rank) * (a[1] == "F")
    ),
    "`transfer` is added once, whatever its length is": lambda j: lambda a, rank: j["placement"][a[0]] != rank,
}
_NEEDS: dict[str, Any] = {
    "a B, or an I, does not wait for that of the next stage, from which its gradient comes": _alone,
    "the B or I of a stage waits for the W of the next stage: it needs its I only": _late,
    "actions wait for nothing but their rank: they need the results of others": lambda action, num_stages: [],
}
# Of each key: the code, what is said, and what it leads to. A makespan may be wrong by any of the others as well.
_KEYS: dict[str, list[tuple[str, str, Way]]] = {
    "makespan": [
        *(("TRANSFER", text, lambda j, d=d: _play(j, delay=d(j)).makespan) for text, d in _DELAYS.items()),
        (
            "TRANSFER",
            "the rank that sends is busy while its result travels: it goes on with its next action",
            lambda j: _blocking(j).makespan,
        ),
        *(("DEPENDENCY", text, lambda j, n=n: _play(j, n).makespan) for text, n in _NEEDS.items()),
        (
            "STAGE-TIMES",
            "the times of stage 0 are taken for those of all stages",
            lambda j: _play(j, times=lambda a: j["times"][a[1]][0]).makespan,
        ),
        (
            "STAGE-TIMES",
            "`times` is read by rank: it has a time for each stage",
            lambda j: _play(j, times=lambda a: j["times"][a[1]][j["placement"][a[0]]]).makespan,
        ),
        ("MAKESPAN", "it is the longest busy time of a rank: gaps count, too", lambda j: max(_busy(j))),
        ("MAKESPAN", "it is the sum of all times: ranks work at once", lambda j: sum(_busy(j))),
        ("MAKESPAN", "it is when rank 0 ends: another may end later", lambda j: _last_of(j, 0)),
        ("MAKESPAN", "it is when the last rank ends: another may end later", lambda j: _last_of(j, -1)),
    ],
    "idle": [
        ("IDLE", "only gaps between a rank's first action and its last are counted", lambda j: _ends(j, True)),
        (
            "IDLE",
            "the time after a rank's last action is left out: it counts up to the makespan",
            lambda j: _ends(j, False),
        ),
        (
            "IDLE",
            "the time before a rank's first action is left out: it counts from 0",
            lambda j: [i - _play(j).start[o[0]] for i, o in zip(right(j)["idle"], j["orders"], strict=True)],
        ),
        ("IDLE", "these are the busy times: idle is the rest up to the makespan", _busy),
        (
            "IDLE",
            "it is a share of the makespan: asked is a time",
            lambda j: [i / right(j)["makespan"] for i in right(j)["idle"]],
        ),
    ],
    "peak": [
        ("LIVE", "an I ends the activation here: its W still needs it", lambda j: peaks(j["orders"], "BI")),
        ("LIVE", "a W does not end an activation here: it does", lambda j: peaks(j["orders"], "B")),
        (
            "LIVE",
            "the I and the W of a micro-batch each end one here: only the W does",
            lambda j: peaks(j["orders"], "BIW"),
        ),
        ("LIVE", "activations are never freed here", lambda j: peaks(j["orders"], "")),
        (
            "LIVE",
            "the live activations after each backward pass are counted: most are there before one",
            lambda j: [p - 1 for p in peaks(j["orders"])],
        ),
        ("LIVE", "an F that starts when a B or a W ends is counted before that: what ends then is free", _ties),
        ("LIVE", "the peak of all ranks is given for each", lambda j: [max(peaks(j["orders"]))] * len(j["orders"])),
        ("LIVE", "micro-batches are counted: each stage of a rank keeps its own of them", _most_microbatches),
    ],
}


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs, made = given[0]["jobs"], got[0]["ended"]
    if len(made) < len(jobs):
        return _endless(jobs, len(made), got[0]["line"])
    wants = [right(job) for job in jobs]
    for job, want, have in zip(jobs, wants, made, strict=True):
        if (found := difference(want, have, 0, math.inf)) and found.code != "DTL-VALUE":
            return Finding(found.code, f"{found.text}. {_told(job)}", advice=found.advice)
    for key, ways in _KEYS.items():
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
        return _play(job, _waits(way)).at == [len(order) for order in job["orders"]]

    ways = [way for way in _ENDLESS if all(ends(j, way) == (k < ended) for k, j in enumerate(jobs[: ended + 1]))]
    text = "your function does not end, where every rank can come to its end: an action waits for what never comes"
    if ways:
        text += f". That is so if {', or if '.join(_ENDLESS[way] for way in ways)}"
    return Finding("DTL-LOOP", f"{text}. One case: {_told(jobs[ended])}", 0, line)


def _told(job: Job) -> str:
    """A job with the right start and end of each action."""
    played = _play(job)
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
