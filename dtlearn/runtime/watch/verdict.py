"""Why ranks failed, if they did, in a run, a cell or a request: the cause before its consequences."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..errors import RankError, RanksDisagree, RanksTimeout
from ..faults.failure import Failure
from ..faults.stacks import Stuck
from ..machine.limits import Limits
from ..machine.patience import FIRST_LOOK, LOOKS_APART, NEXT_LOOK
from .explain import comes_before, explain_failures, timeout_message
from .stalls import judge
from .watch import Watch


class WatchedRanks(Protocol):
    """Ranks that do something, as the verdict sees them.

    Attributes:
        watch: reads their call logs.
        limits: what each may use.
    """

    watch: Watch
    limits: Limits

    def ended(self) -> set[int]:
        """Ranks that will make no further call."""

    def failures(self) -> tuple[Failure, ...]:
        """How ranks failed, the first cause first."""

    def log_faults(self) -> Mapping[int, str]:
        """{rank: why its call log is incomplete}. What the watch says of such logs means nothing."""

    def waiting(self) -> Mapping[int, str]:
        """{rank: the call that it waits in}, as far as that can be told at once."""

    def look(self) -> list[Stuck]:
        """Where each rank stands now."""

    def wait(self, seconds: float) -> None:
        """Listen to them for so much time, more where they cannot get a processor."""

    def printed(self) -> Mapping[int, str] | None:
        """{rank: what it printed}; None if that has been shown already, as in a notebook."""


def find_error(ranks: WatchedRanks, timeout: float | None, what: str = "") -> RankError | RanksTimeout | None:
    """The error of ranks that do not go on now; None if all did what they were asked and their calls fit.

    `timeout`: the time limit in seconds, if it has passed; None otherwise. `what` leads the message.
    """
    error: RankError | RanksTimeout | None = None
    diagnosis = ranks.watch.last_look(ranks.ended()) if not ranks.log_faults() else None
    failures = ranks.failures()
    if diagnosis and comes_before(diagnosis, failures):
        error = RanksDisagree(diagnosis, ranks.printed())
    elif failures:
        error = explain_failures(failures, ranks.waiting(), ranks.limits, ranks.printed(), what)
    elif timeout is not None:
        error = _explain_timeout(ranks, timeout, what)
        if len(failures := ranks.failures()) == len(error.stuck):  # all have ended while they were looked at
            error = explain_failures(failures, {}, ranks.limits, ranks.printed(), what)
    if error is not None:
        error.last_calls = ranks.watch.last_calls()
    return error


def fault_finder(ranks: WatchedRanks) -> Callable[[], bool]:
    """A function that tells, whenever it is called while the ranks run, whether they have to be stopped.

    The watch reads the call logs. Ranks that make the default group themselves can wait for each other in there, of
    which the logs say nothing: when others have ended, the stacks of those that are left are looked at, twice.
    """
    next_look, waited = time.monotonic() + FIRST_LOOK, False

    def at_fault() -> bool:
        nonlocal next_look, waited
        if ranks.log_faults():  # a log lacks something: nothing can be concluded from it
            return False
        ended = ranks.ended()
        if ranks.watch.look(ended) is not None:
            return True
        if ended and not ranks.watch.waiting() and time.monotonic() >= next_look:
            stuck = with_calls(ranks.look(), ranks.watch)
            diagnosis = judge(stuck, stuck, {})
            waits = diagnosis.code == "DTL-INIT" and all(s.state != "runs" for s in stuck)
            if waits and waited:
                ranks.watch.diagnosis = diagnosis
                return True
            waited = waits
            next_look = time.monotonic() + (NEXT_LOOK if waits else FIRST_LOOK)
        return False

    return at_fault


def with_calls(stuck: Sequence[Stuck], watch: Watch) -> list[Stuck]:
    """Ranks that seem to run as waiting ones, if they wait in a call of the log, or inside torch for other ranks."""
    waiting = watch.waiting()
    standing = []
    for s in stuck:
        last = s.frames[-1] if s.frames else None
        if s.state == "runs" and s.rank in waiting:
            s = replace(s, state="waits", call=waiting[s.rank].text)
        elif s.state == "runs" and last is not None and last.inside:
            s = replace(s, state="waits", call=f"{last.inside}, {last}")
        standing.append(s)
    return standing


def _explain_timeout(ranks: WatchedRanks, timeout: float, what: str) -> RanksTimeout:
    """Two looks at ranks that did not end in time: where every one stands, and what that says."""
    before = ranks.watch.waiting()
    first = with_calls(ranks.look(), ranks.watch)
    ranks.wait(LOOKS_APART)
    ranks.watch.look(ranks.ended())
    waiting = ranks.watch.waiting()
    second = with_calls(ranks.look(), ranks.watch)
    diagnosis = judge(first, second, {rank: wait.event for rank, wait in waiting.items()})
    stayed = [r for r, wait in waiting.items() if r in before and before[r].event.seq == wait.event.seq]
    moving = bool(waiting) and not stayed
    message = what + timeout_message(second, timeout, diagnosis, moving)
    return RanksTimeout(message, tuple(second), ranks.printed(), diagnosis)
