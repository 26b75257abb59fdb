"""ch11.zero_bubble: 1F1B of several sizes; the orders that come back are checked, and played with several times."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._jobs import Job, numbers
from ._schedules import Action, Orders, Played, as_tuples, is_orders, needs, one_f_one_b, peaks, play, problem, text_of


def inputs(case: Case) -> Given:
    g = case.generator()
    number = numbers(g)

    def times() -> dict[str, int]:
        weights = number(1, 7)
        return {"F": number(weights, 9), "I": number(weights, 9), "W": weights}

    sizes = [
        (3, 4),
        (2, 3),
        (4, number(5, 9)),
        (3, 3),
        (5, number(10, 13)),
        (1, 3),
        (3, number(4, 7)),
        (4, 4),
        (2, number(2, 6)),
        (number(7, 11), number(14, 25)),
    ]
    jobs = [{"orders": one_f_one_b(p, m), "times": [{"F": 1, "I": 1, "W": 1}, times(), times()]} for p, m in sizes]
    return [{"jobs": jobs}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    return [answer([[tuple(action) for action in order] for order in job["orders"]]) for job in jobs]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs, made = given[0]["jobs"], got[0]
    for job, orders in zip(jobs, made, strict=True):
        if why := is_orders(orders, len(job["orders"])):
            return Finding("DTL-VALUE-NONE" if orders is None else "DTL-VALUE-TYPE", f"{_told(job)}: {why}")
    pairs = [(job, as_tuples(orders)) for job, orders in zip(jobs, made, strict=True)]
    for judge in (_valid, _in_memory, _in_time):
        for job, orders in pairs:
            if found := judge(job, orders):
                return Finding(f"DTL-VALUE-{found[0]}", f"{_told(job)}: {found[1]}")
    return None


def _sizes(job: Job) -> tuple[int, int]:
    return len(job["orders"]), len(job["orders"][0]) // 2


def _told(job: Job) -> str:
    return "p = {}, m = {}".format(*_sizes(job))


def _valid(job: Job, orders: Orders) -> tuple[str, str] | None:
    p, m = _sizes(job)
    for rank, order in enumerate(orders):
        if whole := next((a for a in order if a[1] == "B"), None):
            return "NOT-SPLIT", f"rank {rank} still does {text_of(whole)}: each B is split in an I and a W"
        done = set[Action]()
        for a in order:
            if a[1] == "W" and (a[0], "I", a[2]) not in done and (a[0], "I", a[2]) in order:
                return "WEIGHTS-EARLY", f"rank {rank} does {text_of(a)} before {a[0]}I{a[2]}, whose results it needs"
            done.add(a)
    if found := problem(orders, range(p), "FIW", m):
        return found[0].removeprefix("DTL-VALUE-"), found[1]
    for rank, (before, after) in enumerate(zip(as_tuples(job["orders"]), orders, strict=True)):
        wanted = [(s, op.replace("B", "I"), k) for s, op, k in before]
        have = [a for a in after if a[1] != "W"]
        if wanted != have:
            a, b = next((a, b) for a, b in zip(wanted, have, strict=True) if a != b)
            text = (
                f"rank {rank} does {text_of(b)} where 1F1B has {text_of(a).replace('I', 'B')}: only the Ws are to be "
            )
            return "ORDER", f"{text}placed, and the Fs and Is stay in the order of the Fs and Bs"
    return None


def _waiting(order: list[Action]) -> int:
    """The most Ws that wait while something else is done."""
    waiting = most = 0
    for _, op, _ in order:
        most = max(most, waiting) if op != "W" else most
        waiting += (op == "I") - (op == "W")
    return most


def _in_memory(job: Job, orders: Orders) -> tuple[str, str] | None:
    p, m = _sizes(job)
    for rank, (order, peak) in enumerate(zip(orders, peaks(orders), strict=True)):
        if peak > p:
            text = f"rank {rank} holds up to {peak} activations, and p = {p} are allowed"
            if all(op == "W" for _, op, _ in order[2 * m :]):
                return "WEIGHTS-LAST", f"{text}: all its Ws come at the end, and each frees one"
            waiting = ", ".join(str(_waiting(o)) for o in orders)
            text += f". While another action is done, up to {waiting} Ws wait on the ranks 0 to {p - 1}"
            return "TOO-MANY-LIVE", f"{text}: each of them keeps an activation"
    return None


def _in_time(job: Job, orders: Orders) -> tuple[str, str] | None:
    p, m = _sizes(job)
    for times in job["times"]:
        played = play(orders, range(p), lambda a, times=times: times[a[1]])  # type: ignore[misc]
        idle = played.makespan - m * sum(times.values())
        wanted = (p - 1) * (times["F"] + times["I"] - times["W"])
        if idle > wanted:
            text = f"with F = {times['F']}, I = {times['I']}, W = {times['W']} each rank is idle for {idle}, and "
            text += f"{wanted} is possible"
            if all(order[i + 1][1] == "W" for order in orders for i, a in enumerate(order) if a[1] == "I"):
                return "WEIGHTS-AT-ONCE", f"{text}: each W follows its I at once, and none is left for the bubble"
            return "BUBBLE", f"{text}: {_gap(orders, played)}"
    return None


def _gap(orders: Orders, played: Played) -> str:
    """Where a rank is idle though a W could be done, or does a W while the next action was ready; "" if nowhere."""
    for rank, order in enumerate(orders):
        free = 0
        for place, action in enumerate(order):
            start = played.start[action]
            waiting = [a for a in order[place:] if a[1] == "W" and played.end.get((a[0], "I", a[2]), start) <= free]
            if start > free and waiting:
                text = f"rank {rank} is idle from {free} to {start} before {text_of(action)}"
                return f"{text}, and could do {text_of(waiting[0])}"
            free = played.end[action]
    for rank, peak in enumerate(peaks(orders)):
        if peak < len(orders):
            text = f"rank {rank} holds at most {peak} activations, and p = {len(orders)} are allowed"
            return f"{text}: there is room to put off more Ws, to where the rank would be idle"
    for rank, order in enumerate(orders):
        for before, action in pairwise(order):
            needed = chain(*needs(action, len(orders)))
            others = [played.end[a] for a in needed if a in played.end]
            if before[1] == "W" and action[1] != "W" and max(others, default=0) <= played.start[before]:
                text = f"rank {rank} does {text_of(before)} while {text_of(action)} could be done"
                return f"{text}, for which another rank may be waiting"
    return "some Ws stand too early, and others too late"


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}p may be 1, and m may be p"


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")], seconds=5.0)
