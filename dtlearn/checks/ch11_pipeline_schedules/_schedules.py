"""Schedules in plain data, as the exercises of this chapter have them: made, read and played.

An action is `(stage, op, microbatch)`; `orders` has a list of them for each rank, and `placement[stage]` is a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Action = tuple[int, str, int]
Orders = list[list[Action]]


def read(text: str) -> Orders:
    """The orders of a text such as "0F0 0B0 / 1F0 1B0"."""
    found = [re.findall(r"(-?\d+)([A-Z])(-?\d+)", order) for order in text.split("/")]
    return [[(int(stage), op, int(k)) for stage, op, k in order] for order in found]


def text_of(action: Sequence[Any]) -> str:
    """An action as a text: (2, "F", 0) is "2F0"."""
    return "".join(map(str, action))


def told(orders: Sequence[Sequence[Any]]) -> str:
    """The orders as a text that `read` reads."""
    return " / ".join(" ".join(map(text_of, own)) for own in orders)


def as_tuples(orders: Any) -> Orders:
    """Orders as they come from a rank, where tuples became lists."""
    return [[(a[0], a[1], a[2]) for a in order] for order in orders]


def needs(action: Action, num_stages: int) -> list[set[Action]]:
    """The actions that one needs: each entry has one, or two where a backward pass may be whole or split."""
    stage, op, k = action
    if op == "F":
        return [{(stage - 1, "F", k)}] if stage else []
    if op == "W":
        return [{(stage, "I", k)}]
    return [{(stage, "F", k)}, *([{(stage + 1, "B", k), (stage + 1, "I", k)}] if stage < num_stages - 1 else [])]


@dataclass
class Played:
    """What became of a schedule.

    Attributes:
        start, end: times of the actions that ran.
        at: by rank, the place in its order that it came to; the length of the order if it ended.
    """

    start: dict[Action, int] = field(default_factory=dict)
    end: dict[Action, int] = field(default_factory=dict)
    at: list[int] = field(default_factory=list)

    @property
    def makespan(self) -> int:
        return max(self.end.values(), default=0)


def play(
    orders: Orders,
    placement: Sequence[int],
    times: Callable[[Action], int] = lambda action: 1,
    delay: Callable[[Action, int], int] = lambda action, rank: 0,
) -> Played:
    """Run each rank's actions in order, each as soon as it can. `delay`: of an action's result on its way to a rank."""
    played, free = Played(at=[0] * len(orders)), [0] * len(orders)
    left = -1
    while left != (left := sum(map(len, orders)) - sum(played.at)):
        for rank, order in enumerate(orders):
            for action in order[played.at[rank] :]:
                needed = [one_of & played.end.keys() for one_of in needs(action, len(placement))]
                if not all(needed):
                    break
                ready = [played.end[a] + delay(a, rank) for done in needed for a in done]
                played.start[action] = max(free[rank], *ready, 0)
                played.end[action] = free[rank] = played.start[action] + times(action)
                played.at[rank] += 1
    return played


def peaks(orders: Orders, freed_by: str = "BW") -> list[int]:
    """The most activations that each rank holds at once: from F to B, or to W."""
    found = []
    for order in orders:
        live = most = 0
        for _, op, _ in order:
            live += (op == "F") - (op in freed_by)
            most = max(most, live)
        found.append(most)
    return found


def every(num_stages: int, ops: Sequence[str], num_microbatches: int) -> Iterator[Action]:
    """All actions of a schedule whose micro-batches have these ops."""
    return ((s, op, k) for s in range(num_stages) for op in ops for k in range(num_microbatches))


def one_f_one_b(num_ranks: int, num_microbatches: int) -> Orders:
    """1F1B with one stage on each rank."""
    orders: Orders = []
    for rank in range(num_ranks):
        warm = min(num_microbatches, num_ranks - rank - 1)
        order = [(rank, "F", k) for k in range(warm)]
        for k in range(num_microbatches):
            order += [(rank, "F", k + warm)] if k + warm < num_microbatches else []
            order.append((rank, "B", k))
        orders.append(order)
    return orders


def any_valid(placement: Sequence[int], ops: Sequence[str], num_microbatches: int, g: torch.Generator) -> Orders:
    """A schedule by chance: again and again one of the actions that can be done is."""
    orders: Orders = [[] for _ in range(max(placement) + 1)]
    left, done = list(every(len(placement), ops, num_microbatches)), set[Action]()
    while left:
        ready = [a for a in left if all(done & n for n in needs(a, len(placement)))]
        action = ready[int(torch.randint(len(ready), (), generator=g))]
        orders[placement[action[0]]].append(action)
        done.add(action)
        left.remove(action)
    return orders
