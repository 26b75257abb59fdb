"""Seconds of a step as the runner plays it on a link: with its own moments of posting, and one message at a time.

`checking.simulate` lets every result travel as soon as it is there. The runner posts a receive after the action that
its rank is in, and waits for its last sends before it posts the next; and a link carries one message after the other.
Where a transfer takes as long as an action, that decides.
"""

from __future__ import annotations

from collections import defaultdict

from ..actions import Action, Op
from ..checking.simulate import StageTimes
from ..checking.validate import check
from ..schedule import Schedule
from .communication import Compute, MessageBatch, StageMessage, message_of, with_communication


def played_seconds(schedule: Schedule, times: StageTimes, occupied: float, latency: float = 0.0) -> float:
    """Until the last rank has done its part of a step, and what it sent is gone.

    A message starts when both ends have posted it and their ports are free: a rank sends one at a time, and receives
    one at a time. It occupies both ports, and is there one latency later; see `dtlearn.runtime.link.link`.

    **Communication** and **Memory**: none; it is arithmetic.

    Args:
        schedule: any.
        times: of the stages, in seconds.
        occupied: seconds for which a message occupies a port: its bytes / the link's bandwidth.
        latency: of the link, in seconds.

    Raises:
        ScheduleError: the schedule is wrong.
        ValueError: a negative number of seconds.
    """
    check(schedule)
    if occupied < 0 or latency < 0:
        raise ValueError(f"a message takes 0 s or more, got {occupied} s and a latency of {latency} s")
    link = _Link(occupied, latency)
    ranks = [_RankClock(rank, schedule, times, link) for rank in range(schedule.num_ranks)]
    while going := [rank for rank in ranks if not rank.is_done]:
        # The one whose clock is behind goes first, so that messages take their ports nearly in the order of time.
        next(rank for rank in sorted(going, key=lambda rank: rank.now) if rank.go_on())
    return max(max(rank.now, link.sent(rank.leaving) or 0.0) for rank in ranks)


class _Link:
    """When messages were posted, and when they arrived."""

    def __init__(self, occupied: float, latency: float) -> None:
        self._occupied, self._latency = occupied, latency
        self._posted = dict[StageMessage, float]()  # by the first of its two ends
        self._free = defaultdict[tuple[int, str], float](float)  # (rank, direction): from when its port is free
        self._ends = dict[StageMessage, float]()  # when both ports are free again

    def post(self, message: StageMessage, now: float) -> None:
        """By one end; the second end starts it."""
        if message not in self._posted:
            self._posted[message] = now
            return
        ports = (message.src, "sends"), (message.dst, "receives")
        start = max(now, self._posted[message], *(self._free[port] for port in ports))
        self._ends[message] = start + self._occupied
        self._free |= dict.fromkeys(ports, self._ends[message])

    def sent(self, messages: list[StageMessage]) -> float | None:
        """When all of them are gone; None: not all have started."""
        if not all(message in self._ends for message in messages):
            return None
        return max((self._ends[message] for message in messages), default=0.0)

    def arrived(self, message: StageMessage) -> float | None:
        """When it is there; None: it has not started."""
        return None if message not in self._ends else self._ends[message] + self._latency


class _RankClock:
    """One rank in its steps: `Transfers` and `play`, with a clock in the place of tensors."""

    def __init__(self, rank: int, schedule: Schedule, times: StageTimes, link: _Link) -> None:
        self._rank, self._times, self._link = rank, times, link
        self._steps, self._at = with_communication(schedule)[rank], 0
        self._needed = {
            message.needed_by: message
            for order in schedule.orders
            for action in order
            if (message := message_of(action, schedule.placement)) and message.dst == rank
        }
        self.now, self.leaving = 0.0, list[StageMessage]()

    @property
    def is_done(self) -> bool:
        return self._at == len(self._steps)

    def go_on(self) -> bool:
        """Do the next step; False: what it waits for has not happened yet."""
        step = self._steps[self._at]
        ready = self._ready(step)
        if ready is None:
            return False
        self.now = max(self.now, ready)
        if isinstance(step, Compute):
            self.now += self._times.of(step.action)
        else:
            for message in step.messages:
                self._link.post(message, self.now)
            if step.sends:
                self.leaving = list(step.sends)
        self._at += 1
        return True

    def _ready(self, step: Compute | MessageBatch) -> float | None:
        if isinstance(step, MessageBatch):
            return self._link.sent(self.leaving) if step.sends else 0.0
        stage, op, microbatch = step.action
        message = self._needed.get(Action(stage, Op.B if op is Op.I else op, microbatch))
        return self._link.arrived(message) if message else 0.0
