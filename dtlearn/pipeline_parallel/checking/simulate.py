"""When everything in a schedule happens, for given times of the stages: makespan, idle time and live activations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

from ..actions import Action, Op
from ..schedule import Schedule
from .needs import follow_orders, needs, result
from .validate import check


@dataclass(frozen=True)
class StageTimes:
    """What the actions of a stage take, in any unit: one number for all stages, or one for each stage.

    Attributes:
        forward: F.
        inputs: I, the gradient of the inputs.
        weights: W, the gradient of the weights. B takes as long as I and W together.
    """

    forward: float | tuple[float, ...] = 1.0
    inputs: float | tuple[float, ...] = 1.0
    weights: float | tuple[float, ...] = 1.0

    @classmethod
    def equal_parts(cls, chunks: int = 1, *, forward: float = 1.0, inputs: float = 1.0, weights: float = 1.0) -> Self:
        """Times of a rank's whole part of the model, divided by the number of its stages."""
        return cls(forward / chunks, inputs / chunks, weights / chunks)

    def of(self, action: Action) -> float:
        """What an action takes."""
        forward, inputs, weights = (
            times[action.stage] if isinstance(times, tuple) else times
            for times in (self.forward, self.inputs, self.weights)
        )
        return {Op.F: forward, Op.B: inputs + weights, Op.I: inputs, Op.W: weights}[action.op]


EQUAL = StageTimes()


class TimedAction(NamedTuple):
    """An action and when it ran, from `start` to `end`."""

    action: Action
    start: float
    end: float


class Live(NamedTuple):
    """From `time` on, a rank keeps so many activations, each of one micro-batch in one stage."""

    time: float
    activations: float


@dataclass(frozen=True)
class ScheduleTimeline:
    """What happens when. Times are in the unit of the stages' times.

    Attributes:
        schedule: that was simulated.
        spans: for each rank, its actions in order.
        live: for each rank, the activations that it keeps, at each time at which their number changes.
    """

    schedule: Schedule
    spans: tuple[tuple[TimedAction, ...], ...]
    live: tuple[tuple[Live, ...], ...]

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.spans)

    @property
    def is_complete(self) -> bool:
        """Whether all actions ran; False only for what was simulated with `partial` and got stuck."""
        return [len(spans) for spans in self.spans] == [len(order) for order in self.schedule.orders]

    @property
    def makespan(self) -> float:
        """The time from the start to the end of the last action of all ranks."""
        return max((spans[-1].end for spans in self.spans if spans), default=0.0)

    @property
    def busy(self) -> tuple[float, ...]:
        """For each rank, its useful time: the sum of its actions."""
        return tuple(sum(span.end - span.start for span in spans) for spans in self.spans)

    @property
    def idle(self) -> tuple[float, ...]:
        """For each rank, the rest of the makespan."""
        return tuple(self.makespan - busy for busy in self.busy)

    @property
    def idle_between(self) -> tuple[float, ...]:
        """For each rank, its idle time between its first and its last action: what the zero bubble paper counts.

        Where one step follows another without a flush, a rank can begin the next one when it is done with this one,
        and the idle time before its first and after its last action is not lost.
        """
        return tuple(
            spans[-1].end - spans[0].start - busy if spans else 0.0
            for spans, busy in zip(self.spans, self.busy, strict=True)
        )

    @property
    def idle_to_useful(self) -> float:
        """The bubble as Megatron states it: idle time of all ranks / their useful time. (p-1)/m for 1F1B."""
        return sum(self.idle) / sum(self.busy) if any(self.busy) else 0.0

    @property
    def idle_to_total(self) -> float:
        """The bubble as GPipe states it: idle time of all ranks / time of all ranks. (p-1)/(m+p-1) for 1F1B."""
        return sum(self.idle) / (self.num_ranks * self.makespan) if self.makespan else 0.0

    @property
    def peak_live(self) -> tuple[float, ...]:
        """For each rank, its peak of live activations, in units of one micro-batch in one stage."""
        return tuple(max((live.activations for live in steps), default=0.0) for steps in self.live)

    @property
    def peak_waiting_weights(self) -> tuple[int, ...]:
        """For each rank, the peak number of pairs of a stage and a micro-batch whose I is done and whose W is not.

        For each of them the rank keeps the inputs of the layers, and the gradients of their outputs.
        """
        change = {Op.I: 1, Op.W: -1}
        return tuple(
            max(accumulate((change.get(span.action.op, 0) for span in spans), initial=0)) for spans in self.spans
        )


def simulate(
    schedule: Schedule,
    times: StageTimes = EQUAL,
    *,
    transfer: float = 0.0,
    kept_for_weights: float = 1.0,
    partial: bool = False,
) -> ScheduleTimeline:
    """Run a schedule in virtual time: each rank begins an action when it is free and what the action needs is there.

    Args:
        schedule: any.
        times: of the stages.
        transfer: time from the end of an action until its result is at another rank. Ranks compute meanwhile.
        kept_for_weights: the part of an activation that is kept between I and W. An activation counts from the
            beginning of F to the end of B, or of W; with less than 1, the rest is free at the end of I.
        partial: simulate a schedule that gets stuck as far as it goes.

    Raises:
        ScheduleError: the schedule is wrong, and not `partial`.
        ValueError: times for another number of stages, or a negative one.
    """
    _check_times(times, schedule.num_stages, transfer)
    if not partial:
        check(schedule)
    spans = [list[TimedAction]() for _ in schedule.orders]
    ends = dict[Action, tuple[float, int]]()  # of a result: when it is there, and on which rank
    for rank, action in follow_orders(schedule).done:
        start = spans[rank][-1].end if spans[rank] else 0.0
        for end, holder in (ends[need] for need in needs(action, schedule.num_stages)):
            start = max(start, end if holder == rank else end + transfer)
        spans[rank].append(TimedAction(action, start, start + times.of(action)))
        ends.setdefault(result(action), (spans[rank][-1].end, rank))
    live = tuple(tuple(_live(rank_spans, kept_for_weights)) for rank_spans in spans)
    return ScheduleTimeline(schedule, tuple(map(tuple, spans)), live)


def _live(spans: list[TimedAction], kept_for_weights: float) -> Iterator[Live]:
    """The activations that a rank keeps: after each action that takes or frees one."""
    change = {Op.F: 1.0, Op.B: -1.0, Op.I: kept_for_weights - 1.0, Op.W: -kept_for_weights}
    count = 0.0
    for action, start, end in spans:
        if change[action.op]:
            count += change[action.op]
            yield Live(start if action.op == Op.F else end, count)


def _check_times(times: StageTimes, num_stages: int, transfer: float) -> None:
    if transfer < 0:
        raise ValueError(f"a transfer takes 0 or more, got {transfer}")
    for name in ("forward", "inputs", "weights"):
        numbers = getattr(times, name)
        if isinstance(numbers, tuple) and len(numbers) != num_stages:
            raise ValueError(f"{name}: expected a time for each of {num_stages} stages, got {len(numbers)}")
        if min(numbers if isinstance(numbers, tuple) else (numbers,)) < 0:
            raise ValueError(f"{name}: a stage takes 0 or more, got {numbers}")
