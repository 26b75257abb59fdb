"""The watch: reads the call log of every rank while they run, and names a fault as soon as it is certain."""

import math
import time
from collections.abc import Mapping
from pathlib import Path

from ..faults.diagnosis import Diagnosis
from ..record.collectives import without_refused
from ..record.event import Event
from ..record.log_tail import LogTail, Wait
from ..words import ranks_text
from .call_rules import RankView, find_deadlock, find_mismatch, settled
from .leftover_calls import dropped_work, find_leftover
from .nccl_rules import nccl_advice

_CERTAIN_AFTER = 0.3  # seconds that a deadlock must last: entries of different ranks are written at different moments
CALM = 0.2  # seconds between two looks at ranks that all go on: looking costs the head time that ranks could use
_KEPT = 64  # calls of a rank that are kept although they are done, to show where ranks parted


class Watch:
    """Watches the ranks of one run or one cell, by their call logs.

    `calm`: seconds for which a look that found all well is good enough, unless a rank ends.
    """

    def __init__(self, logs: Mapping[int, Path], calm: float = 0.0) -> None:
        self._tails = {rank: LogTail(path, rank) for rank, path in logs.items()}
        self._suspicion: tuple[Diagnosis, float] | None = None
        self._calm, self._looked_at, self._ended = calm, -math.inf, set[int]()
        self._latest: dict[int, RankView] = {}
        self._fitting: dict[str, set[int]] = {}  # calls that need not be compared again
        self.diagnosis: Diagnosis | None = None
        self.advice: dict[str, str] = {}  # of calls that went well: see `nccl_advice`

    def look(self, ended: set[int]) -> Diagnosis | None:
        """Read what is new and judge it. `ended`: ranks that will make no further call.

        Returns a fault, once it is certain; the same one from then on. It raises nothing: whatever goes wrong in a
        diagnosis must not keep the ranks.
        """
        try:
            return self._look(ended)
        except Exception as error:
            return self._cannot_tell(error)

    def _look(self, ended: set[int]) -> Diagnosis | None:
        now = time.monotonic()
        well = self._suspicion is None and ended == self._ended and now < self._looked_at + self._calm
        if self.diagnosis is not None or well:
            return self.diagnosis
        self._looked_at, self._ended = now, set(ended)
        fresh = [tail.read() for tail in self._tails.values()]
        if not any(fresh) and self._suspicion is None and not any(tail.open for tail in self._tails.values()):
            self._latest = {}
            return None
        views = self._views(ended)
        fault = find_mismatch(views, self._fitting) if any(fresh) or self._suspicion else None
        if fault is not None:
            # Ranks that have not come yet belong in the picture: give them a moment.
            complete = all(rank in fault.calls or view.ended or view.blocked for rank, view in views.items())
            if complete or (self._suspicion and now - self._suspicion[1] >= _CERTAIN_AFTER):
                self.diagnosis = fault
            elif self._suspicion is None:
                self._suspicion = (fault, now)
            return self.diagnosis
        fault = find_deadlock(views)
        if fault is None:
            self._suspicion = None
            self._forget(views)
        elif self._suspicion is None or self._key(self._suspicion[0]) != self._key(fault):
            self._suspicion = (fault, now)
        elif now - self._suspicion[1] >= _CERTAIN_AFTER:
            self.diagnosis = fault
        return self.diagnosis

    def last_look(self, ended: set[int]) -> Diagnosis | None:
        """Judge once more, when the ranks have ended or the time is up: also calls that were left over."""
        try:
            return self._last_look(ended)
        except Exception as error:
            return self._cannot_tell(error)

    def _last_look(self, ended: set[int]) -> Diagnosis | None:
        self._looked_at = -math.inf
        if self.look(ended) is None:
            views = self._views(ended)
            self.diagnosis = find_mismatch(views)
            if self.diagnosis is None and ended == set(self._tails):
                self.diagnosis = find_leftover(views)
                if self.diagnosis is None:
                    self._advise(views)
            elif self.diagnosis is None and all(view.ended or view.blocked for view in views.values()):
                self.diagnosis = dropped_work(views)  # gloo gives up a message whose Work is thrown away
        return self.diagnosis

    def _cannot_tell(self, error: Exception) -> Diagnosis | None:
        """A fault without a name, once all ranks have stood in their calls for a while; None as long as one goes on."""
        calls = {rank: view.blocked for rank, view in self._latest.items() if view.blocked is not None}
        if not calls or any(not view.ended and view.blocked is None for view in self._latest.values()):
            self._suspicion = None
            return None
        headline = (
            f"{ranks_text(list(calls))} wait, and the watch cannot tell for what ({type(error).__name__}: {error})"
        )
        fault, now = (
            Diagnosis("DTL-CANNOT-TELL", headline, tuple(calls), calls, dict.fromkeys(calls, "waits")),
            time.monotonic(),
        )
        if self._suspicion is None or self._key(self._suspicion[0]) != self._key(fault):
            self._suspicion = (fault, now)
        elif now - self._suspicion[1] >= _CERTAIN_AFTER:
            self.diagnosis = fault
        return self.diagnosis

    def waiting(self) -> dict[int, Wait]:
        """The ranks that wait for others in a call, as of the last look."""
        now = time.monotonic_ns()
        return {r: self._tails[r].wait_for(v.blocked, now) for r, v in self._latest.items() if v.blocked is not None}

    def last_calls(self) -> dict[int, list[Event]]:
        """The latest eight calls of every rank."""
        return {rank: tail.events()[-8:] for rank, tail in self._tails.items()}

    def _views(self, ended: set[int]) -> dict[int, RankView]:
        now_ns = time.monotonic_ns()
        views = {}
        for rank, tail in self._tails.items():
            events = without_refused(tail.events())
            gone = rank in ended
            views[rank] = RankView(events, None if gone else tail.blocked(events, now_ns), gone)
        self._latest = views
        return views

    def _forget(self, views: Mapping[int, RankView]) -> None:
        """Keep the logs in memory short: a long training makes a hundred thousand calls."""
        if max((len(view.calls) for view in views.values()), default=0) >= 2 * _KEPT:
            self._advise(views)
            for rank, done in settled(views, keep=_KEPT).items():
                self._tails[rank].forget(done)
            self._fitting = {group: set(sorted(known)[-4 * _KEPT :]) for group, known in self._fitting.items()}

    def _advise(self, views: Mapping[int, RankView]) -> None:
        self.advice = {**nccl_advice(views), **self.advice}  # the first of each kind stays

    @staticmethod
    def _key(fault: Diagnosis) -> tuple[object, ...]:
        calls = {rank: (e.seq if e is not None else None) for rank, e in fault.calls.items()}
        return (fault.code, *sorted(calls.items(), key=str))
