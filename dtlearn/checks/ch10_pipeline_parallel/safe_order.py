"""ch10.safe_order: schedules with other orders of messages on real ranks, whose sends block.

gloo's send returns when it was received, so an answer that comes to the end is free of deadlocks in these schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ..sent import no_stores

Action = tuple[int, str, int]
Orders = list[list[Action]]
_THREADS = dict.fromkeys(
    ("threading", "_thread", "concurrent", "asyncio", "torch.futures"),
    "a send in a thread does not block the rank; here sends block, and their order is the exercise",
)
ORDER = "each rank does its actions in the order of the schedule: only sends and receives may change places"
# How many micro-batches a rank of p has live at most, and how many micro-batches there are.
CASES: dict[str, dict[str, Any]] = {
    "GPipe": {"live": lambda rank, p: 3, "m": lambda p: 3},
    "1F1B": {"live": lambda rank, p: p - rank, "m": lambda p: p + 2, "says": ORDER},
    "one micro-batch after the other": {"live": lambda rank, p: 1, "m": lambda p: 3, "says": ORDER},
    "1F1B that begins early": {"live": lambda rank, p: 2 * (p - rank) - 1, "m": lambda p: p + 4, "says": ORDER},
    "all but the last rank fill up first": {
        "live": lambda rank, p: 1 if rank == p - 1 else 6,
        "m": lambda p: 6,
        "says": ORDER,
    },
}
EDITS = (
    Edit("messages are mixed up: of several that came early the first one is for the next forward pass",
         {"early.popleft()": "early.pop()"}),
    Edit("rank 0's forward passes need nothing from another rank, and are given a tensor: None is expected",
         {"early.popleft() if rank else None": "early.popleft() if rank else torch.zeros(shape)"}),
    Edit("the last rank's backward passes need nothing from another rank, and are given a tensor: None is expected",
         {"receive(rank + 1) if rank < last else None": "receive(rank + 1) if rank < last else torch.zeros(shape)"}),
    Edit("what a backward pass is given is sent on, not what it returns",
         {"result = backward(microbatch, receive(rank + 1) if rank < last else None)":
          "arrived = receive(rank + 1) if rank < last else torch.zeros(shape)\n            "
          "backward(microbatch, arrived if rank < last else None)\n            result = arrived"}),
)  # fmt: skip


def orders_of(p: int, m: int, live: Callable[[int, int], int]) -> Orders:
    """Each rank makes forward passes while fewer micro-batches than `live` are live, else backward passes."""
    orders: Orders = [[] for _ in range(p)]
    done = [{"F": 0, "B": 0} for _ in range(p)]
    while any(len(order) < 2 * m for order in orders):
        before = sum(map(len, orders))
        for rank, own in enumerate(done):
            op = "F" if own["F"] < m and own["F"] - own["B"] < live(rank, p) else "B"
            source = rank - 1 if op == "F" else rank + 1
            if own[op] < m and (not 0 <= source < p or done[source][op] > own[op]):
                orders[rank].append((rank, op, own[op]))
                own[op] += 1
        assert sum(map(len, orders)) > before, "no rank can go on: this schedule cannot be carried out"
    return orders


def inputs(case: Case) -> Given:
    """The orders, and what a rank's F and B of each micro-batch add to their input: no other rank knows it."""
    p, g = case.world_size, case.generator()
    m = case.params["m"](p)
    orders = [list(map(list, order)) for order in orders_of(p, m, case.params["live"])]
    return [{"orders": orders, "shape": [2], "adds": torch.randint(1000, (2, m, 2), generator=g).float()}
            for _ in range(p)]  # fmt: skip


def on_rank(answer: Any, orders: Any, shape: Any, adds: Any) -> Any:
    calls: Any = []

    def compute(op: str, microbatch: int, arrived: Any) -> Any:
        is_tensor = isinstance(arrived, torch.Tensor)
        calls.append((f"{rank}{op}{microbatch}", arrived.clone() if is_tensor else arrived))  # type: ignore[name-defined] # noqa: F821
        return (arrived if is_tensor else torch.zeros(shape)) + adds["FB".index(op)][microbatch]

    told = [[tuple(action) for action in order] for order in orders]
    answer(told, tuple(shape), lambda k, x: compute("F", k, x), lambda k, gradient: compute("B", k, gradient))
    return {"actions done": " ".join(name for name, _ in calls), "what each is given": dict(calls)}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Each action is given the sum of what the same passes on the ranks before it, or behind it, have added."""
    results = []
    for rank, own in enumerate(given):
        arrives: dict[str, Any] = {}
        for _, op, k in own["orders"][rank]:
            before = given[:rank] if op == "F" else given[rank + 1 :]
            parts = [other["adds"]["FB".index(op)][k] for other in before]
            arrives[f"{rank}{op}{k}"] = torch.stack(parts).sum(0) if parts else None
        results.append({"actions done": " ".join(arrives), "what each is given": arrives})
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that hangs: what the ranks do, and who waits."""
    orders = "; ".join(
        f"rank {rank} {' '.join(''.join(map(str, one)) for one in order)}"
        for rank, order in enumerate(given[0]["orders"])
    )
    last = [events[-1] for rank in range(case.world_size) if (events := record.select(rank=rank).events)]
    waiting, cause = {event.op for event in last if event.end_ns is None}, ""
    if waiting == {"recv"}:
        cause = ". Each waits for what another holds back, or has not made yet. Who sends first follows from the orders"
        cause = f"{cause} of both, not from a rank's number"
    elif "send" in waiting:
        cause = ". Two neighbours send first. Who sends first follows from the orders of both, not from a rank's number"
        cause = f"{cause}; isend is ruled out"
    return f'this is with "{case.name}", where the actions are: {orders}{cause}'


def all_sent(case: Case, given: Given, record: Record) -> Finding | None:
    """Each result is sent by dist.send: a call that no record shows may be one that does not block."""
    for rank in range(case.world_size):
        needed = case.params["m"](case.world_size) * ((rank > 0) + (rank < case.world_size - 1))
        if (made := sum(event.op == "send" for event in record.select(rank=rank))) < needed:
            text = f"the values are right, but rank {rank} called dist.send {made} times, for {needed} results"
            return Finding("DTL-RULE-CALLS", text, rank)
    return None


def most_sends(case: Case, given: Given) -> float:
    return float(case.params["m"](case.world_size) * min(2, case.world_size - 1))


EXAMPLE = {"orders": [list(map(list, order)) for order in orders_of(2, 2, lambda rank, p: p - rank)], "shape": [1]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "adds": torch.full((2, 2, 1), 10.0**rank)} for rank in range(2)],
    why=why,
    rules=[
        rules.only("send", "recv", why="A call that does not block hides an order that does."),
        rules.most_messages(most_sends),
        all_sent,
    ],
    reads=[lambda source: find_forbidden(source, _THREADS), no_stores],
    stress=Stress(poison=True),
)
