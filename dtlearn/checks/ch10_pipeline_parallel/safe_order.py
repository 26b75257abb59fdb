"""ch10.safe_order: schedules with other orders of messages, one after the other, on real ranks whose sends block.

gloo's send returns when it was received, so an answer that comes to the end is free of deadlocks in these schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Stress, difference, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ..sent import no_stores

Action = tuple[int, str, int]
Orders = list[list[Action]]
_THREADS = dict.fromkeys(
    ("threading", "_thread", "concurrent", "asyncio", "torch.futures"),
    "a send in a thread does not block the rank; here sends block, and their order is the exercise",
)


def follow(p: int, m: int, wants: Callable[[int, int, int], str]) -> Orders:
    """The orders of ranks that each do, of what is possible, what they want.

    Args:
        p, m: ranks and micro-batches.
        wants: of a rank and the number of its forward and backward passes so far: "F" or "B", or "BF" for a backward
            pass if there is one to do, and otherwise a forward pass.
    """
    orders: Orders = [[] for _ in range(p)]
    done = [{"F": 0, "B": 0} for _ in range(p)]
    while any(len(order) < 2 * m for order in orders):
        before = sum(map(len, orders))
        for rank in range(p):
            own = done[rank]
            can_f = own["F"] < m and (rank == 0 or done[rank - 1]["F"] > own["F"])
            can_b = own["B"] < own["F"] and (rank == p - 1 or done[rank + 1]["B"] > own["B"])
            can = "F" * can_f + "B" * can_b
            if want := next((op for op in wants(rank, own["F"], own["B"]) if op in can), None):
                orders[rank].append((rank, want, own[want]))
                own[want] += 1
        assert sum(map(len, orders)) > before, "no rank can go on: this schedule cannot be carried out"
    return orders


def live(p: int, m: int, most: Callable[[int], int]) -> Orders:
    """A forward pass while fewer than `most(rank)` micro-batches are live, else a backward pass."""
    return follow(p, m, lambda rank, f, b: "F" if f < m and f - b < most(rank) else "B")


def inputs(case: Case) -> Given:
    p, g = case.world_size, case.generator()
    more = int(torch.randint(0, 3, (), generator=g))
    schedules: dict[str, Orders] = {
        "GPipe": live(p, 3, lambda rank: 3),
        "1F1B": live(p, p + 2 + more, lambda rank: p - rank),
        "1F1B with few micro-batches": live(p, max(1, p - 1), lambda rank: p - rank),
        "one micro-batch after the other": live(p, 3, lambda rank: 1),
        "1F1B that begins early": live(p, p + 4, lambda rank: 2 * (p - rank) - 1),
        "pairs of micro-batches": live_in_groups(p, 6, 2),
        "all but the last rank fill up first": live(p, 6, lambda rank: 1 if rank == p - 1 else 6),
        "passes as they come": follow(p, 4, lambda rank, f, b: ("FB", "BF")[int(torch.randint(2, (), generator=g))]),
    }
    given: Given = [{"jobs": []} for _ in range(p)]
    for name, orders in schedules.items():
        shape = torch.randint(1, 4, (2,), generator=g).tolist()
        m = len(orders[0]) // 2
        for own in given:
            job: dict[str, Any] = {"name": name, "orders": [list(map(list, order)) for order in orders], "shape": shape}
            # What this rank's passes add to what they are given, F and B of each micro-batch: nobody else knows it.
            job["adds"] = torch.randint(1000, (2, m, *shape), generator=g).float()
            own["jobs"].append(job)
    return given


def live_in_groups(p: int, m: int, group: int) -> Orders:
    """So many forward passes, then as many backward passes, and again."""
    return follow(p, m, lambda rank, f, b: "F" if f < m and f - b < group and (f % group or f == b) else "B")


def on_rank(answer: Any, jobs: Any) -> Any:
    notes: Any = []
    for job in jobs:
        calls: Any = []
        shape = tuple(job["shape"])

        def compute(op: str, microbatch: int, arrived: Any, calls: Any = calls, job: Any = job) -> Any:
            calls.append([op, microbatch, arrived.clone() if isinstance(arrived, torch.Tensor) else None])
            base = arrived if isinstance(arrived, torch.Tensor) else torch.zeros(job["shape"])
            return base + job["adds"]["FB".index(op)][microbatch]

        def forward(microbatch: int, x: Any) -> Any:
            return compute("F", microbatch, x)

        def backward(microbatch: int, gradient: Any) -> Any:
            return compute("B", microbatch, gradient)

        orders = [[tuple(action) for action in order] for order in job["orders"]]
        answer(orders, shape, forward, backward)
        notes.append(calls)
    return notes


def arrives(given: Given, number: int, rank: int, op: str, microbatch: int) -> torch.Tensor | None:
    """What an action of the job with this number is given: see `compute`. None: it needs no message."""
    before = given[:rank] if op == "F" else given[rank + 1 :]
    adds = [own["jobs"][number]["adds"]["FB".index(op)][microbatch] for own in before]
    return torch.stack(adds).sum(0) if adds else None


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for number, (job, calls) in enumerate(zip(i["jobs"], notes, strict=True)):
            asked, made = [one[1:] for one in job["orders"][rank]], [one[:2] for one in calls]
            if asked != made:
                return Finding(*_other_order(job, rank, asked, made), rank)
            for op, microbatch, arrived in calls:
                action, right = f"{rank}{op}{microbatch}", arrives(given, number, rank, op, microbatch)
                if right is None and arrived is not None:
                    text = f"{job['name']}: {action} needs nothing from another rank, and is given a tensor"
                    return Finding("DTL-VALUE-MESSAGE", text, rank)
                if right is not None and (found := difference(right, arrived, 1e-6, 1e-6, f"what {action} is given")):
                    return Finding(*_other_message(given, number, action, arrived, found), rank)
    return None


def _other_order(job: dict[str, Any], rank: int, asked: list[Any], made: list[Any]) -> tuple[str, str]:
    text = f"{job['name']}: the actions of rank {rank} are {' '.join(f'{rank}{op}{k}' for op, k in asked)}; done are "
    text += " ".join(f"{rank}{op}{k}" for op, k in made) or "none"
    if sorted(asked) == sorted(made):
        return "DTL-VALUE-ORDER", f"{text}. Only sends and receives may change places"
    code = "DTL-VALUE-ACTION-MISSING" if len(made) < len(asked) else "DTL-VALUE-ACTION-TWICE"
    return code, text


def _other_message(given: Given, number: int, action: str, arrived: Any, found: Finding) -> tuple[str, str]:
    job, rank = given[0]["jobs"][number], int(action[0])
    for op, sender in (("F", rank - 1), ("B", rank + 1)):
        for k in range(len(job["orders"][rank]) // 2):
            want = arrives(given, number, rank, op, k)
            if want is not None and not difference(want, arrived, 1e-6, 1e-6):
                text = f"{job['name']}: {action} is given the result of {sender}{op}{k}: messages are mixed up"
                return "DTL-VALUE-MESSAGE", text
    return "DTL-VALUE-MESSAGE", f"{job['name']}: {found.text}"


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that hangs: in which schedule, and what the ranks do in it."""
    jobs = given[0]["jobs"]
    reached = []
    for rank in range(case.world_size):
        left = len(record.select(rank=rank).events)
        number = 0
        for number, job in enumerate(jobs):  # noqa: B007
            neighbours = (rank > 0) + (rank < case.world_size - 1)
            left -= len(job["orders"][rank]) * neighbours
            if left <= 0:
                break
        reached.append(number)
    job = jobs[min(reached)]
    orders = "; ".join(f"rank {rank} {' '.join(''.join(map(str, one)) for one in order)}" for rank, order in enumerate(job["orders"]))
    last = [events[-1] for rank in range(case.world_size) if (events := record.select(rank=rank).events)]
    waiting, cause = {event.op for event in last if event.end_ns is None}, ""
    if waiting == {"recv"}:
        cause = ". Each waits for what another holds back, or has not made yet"
    elif "send" in waiting:
        cause = ". Two neighbours send first"
    if cause:
        cause += ". Who sends first follows from the orders of both, not from a rank's number; isend is ruled out"
    return f'this is with "{job["name"]}", where the actions are: {orders}{cause}'


def _all_sent(case: Case, given: Given, record: Record) -> Finding | None:
    """Each result is sent by dist.send: a call that no record shows may be one that does not block."""
    for rank in range(case.world_size):
        neighbours = (rank > 0) + (rank < case.world_size - 1)
        needed = sum(len(job["orders"][rank]) // 2 * neighbours for job in given[rank]["jobs"])
        if (made := sum(event.op == "send" for event in record.select(rank=rank))) < needed:
            text = f"the values are right, but rank {rank} called dist.send {made} times, for {needed} results"
            return Finding("DTL-RULE-CALLS", text, rank)
    return None


def _sends(case: Case, given: Given) -> float:
    most = 2 if case.world_size > 2 else 1
    return sum(len(job["orders"][0]) / 2 * most for job in given[0]["jobs"])


CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    rules=[
        rules.only("send", "recv", why="A call that does not block hides an order that does."),
        rules.most_messages(_sends),
        _all_sent,
    ],
    reads=[lambda source: find_forbidden(source, _THREADS), no_stores],
    stress=Stress(poison=True),
)
