"""Schedules as the exercises of this chapter have them, in plain data: made, read, checked and played.

An action is `(stage, op, microbatch)`; `orders` has a list of them for each rank, and `placement[stage]` is a rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Action = tuple[int, str, int]
Orders = list[list[Action]]


def text_of(action: Sequence[Any]) -> str:
    """(2, "F", 0) as "2F0", and (-1, "F", 0) as it is."""
    return str(tuple(action)) if min(action[0], action[2]) < 0 else "".join(map(str, action))


def needs(action: Action, num_stages: int) -> list[tuple[str, ...] | tuple[Action, ...]]:
    """What an action needs: of each entry one action, of the whole backward pass or of its first part."""
    stage, op, k = action
    if op == "F":
        return [((stage - 1, "F", k),)] if stage else []
    if op == "W":
        return [((stage, "I", k),)]
    after = (stage + 1, "B", k), (stage + 1, "I", k)
    return [((stage, "F", k),), *([after] if stage < num_stages - 1 else [])]


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


Times = Callable[[Action], int]


def play(
    orders: Orders,
    placement: Sequence[int],
    times: Times,
    delay: Callable[[Action, int], int] = lambda action, rank: 0,
    needed: Callable[[Action, int], Any] = needs,
) -> Played:
    """Run each rank's actions in order, each as soon as it can. `delay`: of an action's result on its way to a rank."""
    played, free = Played(at=[0] * len(orders)), [0] * len(orders)
    going = True
    while going:
        going = False
        for rank, order in enumerate(orders):
            while played.at[rank] < len(order):
                action, ready = order[played.at[rank]], free[rank]
                for one_of in needed(action, len(placement)):
                    done = [a for a in one_of if a in played.end]
                    if not done:
                        break
                    ready = max(ready, *(played.end[a] + delay(a, rank) for a in done))
                else:
                    played.start[action], played.end[action] = ready, ready + times(action)
                    free[rank] = played.end[action]
                    played.at[rank] += 1
                    going = True
                    continue
                break
    return played


def peaks(orders: Orders, freed_by: str = "BW") -> list[int]:
    """By rank, the most activations that it holds at once: from F to B, or to W."""
    found = []
    for order in orders:
        live = most = 0
        for _, op, _ in order:
            live += (op == "F") - (op in freed_by)
            most = max(most, live)
        found.append(most)
    return found


def every(num_stages: int, ops: str, num_microbatches: int) -> Iterator[Action]:
    """All actions of a schedule whose micro-batches have these ops."""
    return ((s, op, k) for s in range(num_stages) for op in ops for k in range(num_microbatches))


def is_orders(value: Any, num_ranks: int) -> str:
    """Why a value is no schedule; "" if it is a list of actions for each rank."""
    if not isinstance(value, list) or len(value) != num_ranks:
        count = f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__
        return f"a list of {num_ranks} lists of actions is asked, one for each rank; this is {count}"
    for rank, order in enumerate(value):
        if why := is_order(order):
            return f"rank {rank}: {why}"
    return ""


def is_order(order: Any) -> str:
    """Why a value is no list of actions; "" if it is one."""
    if not isinstance(order, list):
        return f"a list of actions is asked; this is {type(order).__name__}"
    for action in order:
        if not isinstance(action, list | tuple) or list(map(type, action)) != [int, str, int]:
            return f"an action is (stage, op, microbatch), such as (2, 'F', 0); {str(action)[:60]} is none"
    return ""


def as_tuples(orders: Any) -> Orders:
    """Orders as they come from a rank, where tuples became lists."""
    return [[(a[0], a[1], a[2]) for a in order] for order in orders]


def problem(orders: Orders, placement: Sequence[int], ops: str, num_microbatches: int) -> tuple[str, str] | None:
    """What makes a schedule invalid: a code and a clause; None if it is valid."""
    wanted = set(every(len(placement), ops, num_microbatches))
    counts = Counter(a for order in orders for a in order)
    for rank, order in enumerate(orders):
        for action in order:
            if action not in wanted:
                return "DTL-VALUE-ACTIONS", f"rank {rank} does {text_of(action)}, which is no action of this schedule"
            if placement[action[0]] != rank:
                text = f"rank {rank} does {text_of(action)}, and stage {action[0]} is on rank {placement[action[0]]}"
                return "DTL-VALUE-OTHER-STAGE", text
            if counts[action] > 1:
                return "DTL-VALUE-ACTIONS", f"{text_of(action)} is done {counts[action]} times"
    if missing := sorted(wanted - set(counts)):
        more = f", nor are {len(missing) - 1} more" if len(missing) > 1 else ""
        return "DTL-VALUE-ACTIONS", f"{text_of(missing[0])} is never done{more}"
    played = play(orders, placement, lambda action: 1)
    stuck = [rank for rank, order in enumerate(orders) if played.at[rank] < len(order)]
    if not stuck:
        return None
    rank, waits = stuck[0], dict[int, str]()
    while rank not in waits:
        action = orders[rank][played.at[rank]]
        need = next(n for n in needs(action, len(placement)) if not any(a in played.end for a in n))
        first = next(a for a in need if a in wanted)
        holder = placement[first[0]]
        where = f" of rank {holder}" if holder != rank else ", which comes later in its own order"
        waits[rank] = f"rank {rank} waits at {text_of(action)} for {text_of(first)}{where}"
        rank = holder
    return "DTL-VALUE-DEADLOCK", f"{'; '.join(waits.values())}: for ever"


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


def any_valid(placement: Sequence[int], ops: str, num_microbatches: int, g: torch.Generator) -> Orders:
    """A schedule by chance: again and again one of the actions that can be done is."""
    orders: Orders = [[] for _ in range(max(placement) + 1)]
    left, done = list(every(len(placement), ops, num_microbatches)), set[Action]()
    while left:
        ready = [a for a in left if all(done & set(n) for n in needs(a, len(placement)))]
        action = ready[int(torch.randint(len(ready), (), generator=g))]
        orders[placement[action[0]]].append(action)
        done.add(action)
        left.remove(action)
    return orders
