"""What is wrong with a schedule, in words that name the action, its stage and its rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from ..actions import Action, Op
from ..schedule import Schedule
from .needs import follow_orders, needs, result

AT_MOST = 8  # actions of one stage that are named as missing
WORK = {
    Op.F: "the forward pass",
    Op.B: "the backward pass",
    Op.I: "the gradient of the inputs",
    Op.W: "the gradient of the weights",
}


@dataclass(frozen=True)
class ScheduleFault:
    """One thing that is wrong.

    Attributes:
        code: "unknown", "twice", "both", "wrong-rank", "missing", "too-early" or "circular-wait".
        message: in words.
        rank, position: where, in that rank's order; position is None where an action is missing.
        action: what it is about.
    """

    code: str
    message: str
    rank: int
    position: int | None
    action: Action

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ScheduleError(ValueError):
    """A schedule that cannot be executed.

    Attributes:
        findings: all that is wrong with it.
    """

    def __init__(self, name: str, findings: Iterable[ScheduleFault]):
        self.findings = list(findings)
        super().__init__("\n".join([f"the schedule {name!r} cannot be executed:", *map(str, self.findings)]))


def validate(schedule: Schedule) -> list[ScheduleFault]:
    """All that is wrong; an empty list where nothing is. It raises nothing.

    A right schedule has each stage's forward and backward pass of each micro-batch once, on the rank that holds the
    stage, the backward pass as B or as I and W; and when every rank follows its order, nobody waits forever.
    """
    findings = [*_wrong_actions(schedule), *_missing(schedule), *_too_early(schedule)]
    return findings + list(_circular_wait(schedule))


def check(schedule: Schedule) -> None:
    """Raise what `validate` finds.

    Raises:
        ScheduleError: something is wrong.
    """
    if findings := validate(schedule):
        raise ScheduleError(schedule.name, findings)


def _describe(action: Action) -> str:
    return f"{action} ({WORK[action.op]} of micro-batch {action.microbatch} through stage {action.stage})"


def _wrong_actions(schedule: Schedule) -> Iterator[ScheduleFault]:
    """Actions that should not be where they are."""
    seen = dict[Action, tuple[int, int]]()
    for rank, position, action in schedule.actions():
        stage, op, microbatch = action
        where = f"rank {rank}, position {position}: {_describe(action)}"
        if not (0 <= stage < schedule.num_stages and 0 <= microbatch < schedule.num_microbatches):
            has = f"{schedule.num_stages} stages and {schedule.num_microbatches} micro-batches, numbered from 0"
            yield ScheduleFault("unknown", f"{where} does not exist: there are {has}", rank, position, action)
            continue
        if schedule.placement[stage] != rank:
            holder = schedule.placement[stage]
            yield ScheduleFault("wrong-rank", f"{where}, but rank {holder} holds stage {stage}", rank, position, action)
        if action in seen:
            first = "rank {}, position {}".format(*seen[action])
            yield ScheduleFault("twice", f"{where} has been done before: {first}", rank, position, action)
        parts = (Op.I, Op.W) if op == Op.B else (Op.B,) if op in (Op.I, Op.W) else ()
        if others := [str(other) for part in parts if (other := Action(stage, part, microbatch)) in seen]:
            words = f"{where}, and {' and '.join(others)} too: B is I and W together"
            yield ScheduleFault("both", words, rank, position, action)
        seen.setdefault(action, (rank, position))


def _missing(schedule: Schedule) -> Iterator[ScheduleFault]:
    """Actions that no rank has."""
    present = {action for _, _, action in schedule.actions()}

    def lacking(stage: int) -> Iterator[Action]:
        for microbatch in range(schedule.num_microbatches):
            forward, whole, inputs, weights = (Action(stage, op, microbatch) for op in Op)
            if forward not in present:
                yield forward
            if whole not in present and not {inputs, weights} & present:
                yield inputs if schedule.splits_backward else whole
            elif whole not in present and not {inputs, weights} <= present:
                yield inputs if weights in present else weights

    for stage, rank in enumerate(schedule.placement):
        for action in islice(lacking(stage), AT_MOST):
            words = f"rank {rank} never does {_describe(action)}"
            partner = Action(stage, Op.W if action.op == Op.I else Op.I, action.microbatch)
            if action.op in (Op.I, Op.W) and partner in present:
                words += f", though it does {partner}: the two make one backward pass"
            yield ScheduleFault("missing", words, rank, None, action)


def _too_early(schedule: Schedule) -> Iterator[ScheduleFault]:
    """Actions that stand before something that they need in the same rank's order."""
    for rank, order in enumerate(schedule.orders):
        places = dict[Action, int]()
        for position, action in enumerate(order):
            places.setdefault(result(action), position)
        for position, action in enumerate(order):
            for need in needs(action, schedule.num_stages):
                if places.get(need, -1) > position:
                    words = f"rank {rank}, position {position}: {_describe(action)} comes before {order[places[need]]}"
                    words += f" (position {places[need]}), which it needs"
                    yield ScheduleFault("too-early", words, rank, position, action)


class _Wait(NamedTuple):
    """Where a rank stands, what it needs, and where that is: rank and position."""

    action: Action
    need: Action
    holder: int
    position: int


def _waits(schedule: Schedule) -> dict[int, _Wait]:
    """What each rank that does not come to the end of its order waits for, if any rank ever does that."""
    progress = follow_orders(schedule)
    done = {result(action) for _, action in progress.done}
    places = dict[Action, tuple[int, int, Action]]()
    for rank, position, action in schedule.actions():
        places.setdefault(result(action), (rank, position, action))
    waits = dict[int, _Wait]()
    for rank, order in enumerate(schedule.orders):
        for action in order[progress.reached[rank] :][:1]:
            missing = next(need for need in needs(action, schedule.num_stages) if need not in done)
            if missing in places:
                holder, position, need = places[missing]
                waits[rank] = _Wait(action, need, holder, position)
    return waits


def _circular_wait(schedule: Schedule) -> Iterator[ScheduleFault]:
    """Ranks of which each waits for the next one, and the last for the first: at most one such circle."""
    waits = _waits(schedule)
    for start in waits:
        path = [start]
        while (holder := waits[path[-1]].holder) in waits and holder not in path:
            path.append(holder)
        if holder in path and len(circle := path[path.index(holder) :]) > 1:
            told = ((rank, waits[rank]) for rank in circle)
            words = [
                f"rank {rank} stands at {wait.action}, which needs {wait.need} of rank {wait.holder} "
                f"(position {wait.position})"
                for rank, wait in told
            ]
            first = waits[circle[0]].action
            where = schedule.orders[circle[0]].index(first)
            yield ScheduleFault("circular-wait", "; ".join(words) + ": nobody can go on", circle[0], where, first)
            return
