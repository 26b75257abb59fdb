"""A schedule with its messages: for every rank, what it computes, sends and receives, in an order without deadlock.

All messages and actions are put into one order, that of their times if all stages are equally fast: a message comes
after the action that makes it and before the action that needs it. Every rank takes its part of this one order. Then
no circle of ranks can wait for each other, even if every send waits until it is received: of all that is not done, the
first in the order can always be done. And both ends of a pair have their messages in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from ..actions import Action, Op
from ..checking.simulate import simulate
from ..schedule import Schedule


class StageMessage(NamedTuple):
    """A tensor that goes from one rank to another.

    Attributes:
        needed_by: the action that needs it: F the outputs of the stage before, B or I the gradient of its own outputs;
            of the latter two it is B here.
        src, dst: ranks.
    """

    needed_by: Action
    src: int
    dst: int


class MessageBatch(NamedTuple):
    """Messages that a rank posts together, between two actions; in their order."""

    rank: int
    messages: tuple[StageMessage, ...]

    @property
    def sends(self) -> tuple[StageMessage, ...]:
        """The messages that this rank sends."""
        return tuple(message for message in self.messages if message.src == self.rank)

    @property
    def receives(self) -> tuple[StageMessage, ...]:
        """The messages that this rank receives."""
        return tuple(message for message in self.messages if message.dst == self.rank)


class Compute(NamedTuple):
    """An action that a rank does."""

    action: Action


RankStep = Compute | MessageBatch


def with_communication(schedule: Schedule) -> tuple[tuple[RankStep, ...], ...]:
    """For each rank, its actions with the exchanges between them.

    A result is sent as soon as it is there. A receive is posted when the message is sent, or, if the rank computes just
    then, after that action; never long before it is needed, as its room takes memory.

    **Communication**: the outputs of a stage for each boundary between stages on two ranks, and each micro-batch; and
        their gradients on the way back. 2 (S-1) m messages for S stages in a line or a loop, and m micro-batches.

    Args:
        schedule: valid, or the forward passes of a valid one.
    """
    order = list[tuple[float, int, Action, StageMessage | None]]()
    for spans in simulate(schedule, partial=True).spans:
        for action, start, end in spans:
            order.append((start, 1, action, None))
            if message := message_of(action, schedule.placement):
                order.append((end, 0, action, message))  # before the actions that begin then
    order.sort(key=lambda entry: entry[:3])
    ranks = range(schedule.num_ranks)
    return tuple(tuple(_steps_of(rank, schedule.placement, order)) for rank in ranks)


def message_of(action: Action, placement: tuple[int, ...]) -> StageMessage | None:
    """What an action sends: outputs to the next stage, or the gradient of its inputs to the one before.

    None if that stage is on the same rank, or there is none, or the action makes gradients of weights only.
    """
    stage, op, microbatch = action
    other = stage + 1 if op is Op.F else stage - 1
    if op is Op.W or not 0 <= other < len(placement) or placement[other] == placement[stage]:
        return None
    needed_by = Action(other, Op.F if op is Op.F else Op.B, microbatch)
    return StageMessage(needed_by, placement[stage], placement[other])


def _steps_of(
    rank: int, placement: tuple[int, ...], order: list[tuple[float, int, Action, StageMessage | None]]
) -> Iterator[RankStep]:
    """A rank's part of the order; messages with no action between them are one exchange."""
    mine = [
        (action, message)
        for _, _, action, message in order
        if (rank in message[1:] if message else placement[action.stage] == rank)
    ]
    for is_message, entries in groupby(mine, key=lambda entry: entry[1] is not None):
        if is_message:
            yield MessageBatch(rank, tuple(message for _, message in entries if message))
        else:
            yield from (Compute(action) for action, _ in entries)


def forward_only(schedule: Schedule) -> Schedule:
    """The forward passes of a schedule, in their order, for evaluation. `checking.validate` misses the rest in it."""
    orders = tuple(tuple(action for action in order if action.op is Op.F) for order in schedule.orders)
    return replace(schedule, name=f"{schedule.name}, forward", orders=orders)


def describe(step: RankStep, rank: int) -> str:
    """Where a rank stands in a step, for a person."""
    if isinstance(step, Compute):
        stage, _, microbatch = step.action
        return (
            f"rank {rank} of the pipeline was in action {step.action}: stage {stage}, micro-batch {microbatch}; or it "
            "waited for what that needs"
        )
    sends = [f"sends to rank {dst} what {needed_by} needs" for needed_by, _, dst in step.sends]
    receives = [f"receives from rank {src} what {needed_by} needs" for needed_by, src, _ in step.receives]
    return f"rank {rank} of the pipeline was in an exchange, in which it {', '.join(sends + receives)}"
