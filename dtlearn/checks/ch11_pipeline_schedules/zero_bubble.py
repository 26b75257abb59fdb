"""ch11.zero_bubble: 1F1B of several sizes; what the orders that come back do and hold, and how long ranks are idle.

Ws may stand in several places: their order is not compared.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._schedules import as_tuples, one_f_one_b, text_of

CASES: dict[str, dict[str, Any]] = {
    "3 ranks and 4 micro-batches": {},
    "many ranks": {
        "many": True,
        "says": "there may be any number of ranks and of micro-batches, and an F and an I may take longer than a W: "
        "under 1F1B rank r holds r micro-batches less than rank 0 does, so r Ws may wait on it"},
}  # fmt: skip
KINDS, PUT = '"I" if op == "B" else op', 'waiting.append((stage, "W", microbatch))'
ROOM, OLDEST, REST = "if len(waiting) > rank:", "waiting.pop(0)", "made.append(new + waiting)"
EDITS = (
    Edit("each B is split in an I and a W: here it is left, and no W follows", {KINDS: "op", PUT: "pass"}),
    Edit("each B is split in an I and a W: here it is left, and a W follows", {KINDS: "op"}),
    Edit("the Ws are missing: each I has one, later in the order", {PUT: "pass"}),
    Edit("the Ws that still wait at the end are missing", {REST: "made.append(new)"}),
    Edit("each W follows its I at once, and none is left to fill the bubble", {ROOM: "if waiting:"}),
    Edit("all Ws come at the end: each keeps an activation until then", {ROOM: "if False:"}),
    Edit("a W stands before its I, whose results it needs",
         {'if op == "B":': 'if op == "B":\n                new.pop()', ROOM: "if waiting:",
          f"new.append({OLDEST})": f"new += [{OLDEST}, (stage, 'I', microbatch)]"}),
    Edit("as many Ws wait on every rank, p - 1: rank r has room for r of them",
         {ROOM: "if len(waiting) > len(orders) - 1:"}),
    Edit("p - 1 - r Ws wait on rank r, most on rank 0: the last rank has the most room",
         {ROOM: "if len(waiting) > len(orders) - 1 - rank:"}),
    Edit("one W too few waits, r - 1 on rank r: there is room for one more where the rank is idle",
         {ROOM: "if len(waiting) > max(0, rank - 1):"}),
    Edit("one W too many waits, r + 1 on rank r: each keeps an activation, and p are allowed",
         {ROOM: "if len(waiting) > rank + 1:"}),
    Edit("at most two Ws wait on a rank, however many ranks there are: r may wait on rank r",
         {ROOM: "if len(waiting) > min(rank, 2):"}),
    Edit("an action is expected to be a tuple, such as (2, 'F', 0); here it is a list, such as [2, 'F', 0]",
         {REST: "made.append([list(a) for a in new + waiting])"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    """A small 1F1B; with `many`, 9 ranks with random times and a random number of micro-batches."""
    if "many" not in case.params:
        return [{"orders": one_f_one_b(3, 4), "times": {"F": 1, "I": 1, "W": 1}}]
    more, f, i, w = torch.randint(0, 5, (4,), generator=case.generator()).tolist()
    return [{"orders": one_f_one_b(9, 9 + more), "times": {"F": 1 + w + f, "I": 1 + w + i, "W": 1 + w}}]


def on_rank(answer: Any, orders: Any, times: Any) -> Any:
    def name(actions: Any) -> str:
        return " ".join("".join(map(str, a)) for a in actions) or "none"

    def is_order(order: Any) -> bool:
        is_list = isinstance(order, list | tuple)
        return is_list and all(isinstance(a, tuple) and [*map(type, a)] == [int, str, int] for a in order)

    made, p = answer([[tuple(action) for action in order] for order in orders]), len(orders)
    parts = ("Fs and Is", "Ws", "place of the Ws", "activations")
    if not isinstance(made, list | tuple) or len(made) != p or not all(map(is_order, made)):
        keys = [*(f"{part} of rank {rank}" for rank in range(p) for part in parts), "idle time of a rank"]
        return made and dict.fromkeys(keys, f"not there: {repr(made)[:60]} is no list of {p} lists of actions")
    facts: Any = {}
    for rank, order in enumerate(made):
        lives = [sum((op == "F") - (op == "W") for _, op, _ in order[:n]) for n in range(len(order) + 1)]
        early = [(s, op, k) for n, (s, op, k) in enumerate(order) if op == "W" and (s, "I", k) not in order[:n]]
        facts[f"Fs and Is of rank {rank}"] = name(a for a in order if a[1] != "W")
        facts[f"Ws of rank {rank}"] = name(sorted(a for a in order if a[1] == "W"))
        late = f"{name(early[:1])} stands before its I, whose results it needs"
        facts[f"place of the Ws of rank {rank}"] = late if early else "each after its I"
        facts[f"activations of rank {rank}"] = f"at most {p}" if max(lives) <= p else f"up to {max(lives)}"
    ends: Any = {}
    before = -1
    while before < len(ends):
        before, gaps = len(ends), []
        for rank, order in enumerate(made):
            free = 0
            for n, (stage, op, k) in enumerate(order):
                needs = {"F": [(stage - 1, "F", k)] * (stage > 0), "I": [(stage, "F", k), (stage + 1, "I", k)]}.get(
                    op, []
                )
                needs = [need for need in needs if need[0] < p]
                if any(need not in ends for need in needs):
                    break
                start = max([free, *(ends[need] for need in needs)])
                could = [w for w in order[n:] if w[1] == "W" and ends.get((w[0], "I", w[2]), start) <= free < start]
                gaps += (
                    [f": rank {rank} is idle from {free} to {start} and could do {name(could[:1])}"] if could else []
                )
                free = ends[stage, op, k] = start + times.get(op, 0)
    idle = max(ends.values(), default=0) - max(sum(times.get(op, 0) for _, op, _ in order) for order in made)
    enough = (p - 1) * (times["F"] + times["I"] - times["W"])
    facts["idle time of a rank"] = f"at most {enough}" if idle <= enough else f"{idle}{''.join(gaps[:1])}"
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    orders, times, facts = given[0]["orders"], given[0]["times"], dict[str, Any]()
    p, m = len(orders), len(orders[0]) // 2
    for rank, order in enumerate(as_tuples(orders)):
        facts[f"Fs and Is of rank {rank}"] = " ".join(map(text_of, order)).replace("B", "I")
        facts[f"Ws of rank {rank}"] = " ".join(f"{rank}W{k}" for k in range(m))
        facts[f"place of the Ws of rank {rank}"] = "each after its I"
        facts[f"activations of rank {rank}"] = f"at most {p}"
    facts["idle time of a rank"] = f"at most {(p - 1) * (times['F'] + times['I'] - times['W'])}"
    return [facts]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the sizes of its case."""
    return f"{MAY_HELP}this is with p = {len(given[0]['orders'])} and m = {len(given[0]['orders'][0]) // 2}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"orders": one_f_one_b(2, 3), "times": {"F": 1, "I": 1, "W": 1}}],
    why=why,
    rules=[rules.most_messages("0")],
    seconds=5.0,
)
