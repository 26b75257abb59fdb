"""What an action waits for, and how far the ranks get when each follows its order. No times here: see `simulate`.

2F0   1F0                the stage before has sent its output
2B0   2F0 and 3B0        the stage after has sent the gradient of its inputs; 3I0 sends it as well
2I0   the same
2W0   2I0
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ..actions import Action, Op
from ..schedule import Schedule


def result(action: Action) -> Action:
    """What others wait for when they wait for this action: B gives the gradient of the inputs, as I does."""
    return action._replace(op=Op.I) if action.op == Op.B else action


def needs(action: Action, num_stages: int) -> tuple[Action, ...]:
    """Results without which an action cannot begin; a gradient of inputs stands there as I, whoever makes it."""
    stage, op, microbatch = action
    if op == Op.F:
        return (Action(stage - 1, Op.F, microbatch),) if stage else ()
    if op == Op.W:
        return (Action(stage, Op.I, microbatch),)
    after = (Action(stage + 1, Op.I, microbatch),) if stage < num_stages - 1 else ()
    return (Action(stage, Op.F, microbatch), *after)


class OrderProgress(NamedTuple):
    """How far the ranks get.

    Attributes:
        done: rank and action, each one after all that it needs.
        reached: for each rank, how many actions of its order are done.
    """

    done: list[tuple[int, Action]]
    reached: list[int]


def follow_orders(schedule: Schedule) -> OrderProgress:
    """Let every rank follow its order as far as it can. Where a schedule is right, that is to the end."""
    done, reached, results = list[tuple[int, Action]](), [0] * schedule.num_ranks, set[Action]()
    waiting = defaultdict[Action, list[int]](list)  # ranks that wait for a result
    ready = list(range(schedule.num_ranks))
    while ready:
        rank = ready.pop()
        order = schedule.orders[rank]
        while reached[rank] < len(order):
            action = order[reached[rank]]
            missing = [need for need in needs(action, schedule.num_stages) if need not in results]
            if missing:
                waiting[missing[0]].append(rank)
                break
            done.append((rank, action))
            reached[rank] += 1
            results.add(result(action))
            ready += waiting.pop(result(action), [])
    return OrderProgress(done, reached)
