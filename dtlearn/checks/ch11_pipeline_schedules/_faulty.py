"""Schedules with a fault, by chance: actions lost, doubled, moved to another rank, unknown, or out of order."""

from __future__ import annotations

from typing import Any

import torch

from ._jobs import numbers
from ._schedules import Orders, any_valid, one_f_one_b

# Placement and ops: one stage a rank, two in a V, two in a loop, one rank with two and one with one.
_KINDS: list[tuple[list[int], str]] = [
    ([0, 1, 2], "FB"),
    ([0, 1, 1, 0], "FIW"),
    ([0, 1, 0, 1], "FB"),
    ([0, 1, 2, 0], "FB"),
    ([0, 1, 2], "FIW"),
]
_FAULTS = ("lose", "double", "move", "copy", "strange", "stuck", "stuck", "stuck", "stuck", "stuck")


def valid(g: torch.Generator, kind: int | None = None) -> dict[str, Any]:
    """A valid schedule, as the exercise's function is given it."""
    placement, ops = _KINDS[int(torch.randint(len(_KINDS), (), generator=g)) if kind is None else kind]
    m = 2 + int(torch.randint(5, (), generator=g)) // 4  # mostly 2: what is told stays short
    orders = any_valid(placement, ops, m, g)
    return {"orders": orders, "placement": placement, "num_microbatches": m, "ops": list(ops)}


def large(g: torch.Generator) -> list[dict[str, Any]]:
    """A rank alone, 1F1B of many ranks, and a long circle that one more rank waits for."""
    p, m = (int(torch.randint(low, low + 5, (), generator=g)) for low in (7, 9))
    alone = {
        "orders": any_valid([0, 0], "FIW", m, g),
        "placement": [0, 0],
        "num_microbatches": m,
        "ops": ["F", "I", "W"],
    }
    many = {"orders": one_f_one_b(p, m), "placement": [*range(p)], "num_microbatches": m, "ops": ["F", "B"]}
    # The first rank does the B of its earlier stage before that of its later one: all in between wait for it.
    placement = [p, *range(p), 0]
    orders: Orders = [
        [(s, "F", k) for s, at in enumerate(placement) if at == rank for k in (0, 1)] for rank in range(p + 1)
    ]
    for rank, order in enumerate(orders):
        order += [(s, "B", k) for k in (0, 1) for s, at in enumerate(placement) if at == rank]
    names = torch.randperm(p + 1, generator=g).tolist()
    circle = {
        "orders": [orders[names.index(rank)] for rank in range(p + 1)],
        "placement": [names[rank] for rank in placement],
        "num_microbatches": 2,
        "ops": ["F", "B"],
    }
    return [alone, many, circle]


def faulty(g: torch.Generator, fault: str) -> dict[str, Any]:
    """A schedule with a fault: one of those above, or "any"."""
    number, job = numbers(g), valid(g)
    fault = _FAULTS[number(0, len(_FAULTS))] if fault == "any" else fault
    orders: Orders = job["orders"]
    rank = number(0, len(orders))
    order, other = orders[rank], orders[(rank + 1) % len(orders)]
    k = number(0, len(order))
    if fault == "lose":
        del order[k]
    elif fault == "double":
        order.insert(number(0, len(order)), order[k])
    elif fault == "move":
        other.insert(number(0, len(other)), order.pop(k))
    elif fault == "copy":
        other.insert(number(0, len(other)), order[k])
    elif fault == "strange":
        stages, m = len(job["placement"]), job["num_microbatches"]
        unknown = [(-1, "F", 0), (stages, "F", 0), (0, "F", m), (0, "B", -1), (0, "X", 1), (stages - 1, "W", 0)]
        unknown += [(1, "B", 0)] if "I" in job["ops"] else [(1, "I", 0)]
        unknown = [a for a in unknown if a[1] not in job["ops"] or a[0] in (-1, stages) or a[2] in (-1, m)]
        for _ in range(number(1, 4)):
            strange = unknown[number(0, len(unknown))]
            order.insert(number(0, len(order)), strange)
            if number(0, 2):
                orders[number(0, len(orders))].append(strange)
    else:
        for _ in range(number(1, 5)):
            order = orders[number(0, len(orders))]
            i, k = number(0, len(order)), number(0, len(order))
            order[i], order[k] = order[k], order[i]
    return job
