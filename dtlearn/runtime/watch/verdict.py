"""Why a run of ranks failed, if it did: the cause before its consequences."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..agent.client import AgentClient
from ..agent.collector import Collector
from ..errors import RankError, RanksDisagree, RanksTimeout
from ..faults.stacks import Source, no_source
from .explain import comes_before, explain_failures
from .stalls import judge
from .timeouts import explain_timeout, look_at
from .watch import Watch

_FIRST_LOOK, _NEXT_LOOK = 3.0, 1.0  # seconds


def fault_finder(agent: AgentClient, collector: Collector, run_dir: Path, watch: Watch) -> Callable[[], bool]:
    """A function that tells, whenever it is called while the ranks run, whether they have to be stopped.

    The watch reads the call logs. Ranks that make the default group themselves can wait for each other in there, of
    which the logs say nothing: when others have ended, the stacks of those that are left are looked at, twice.
    """
    next_look, seen = time.monotonic() + _FIRST_LOOK, False

    def at_fault() -> bool:
        nonlocal next_look, seen
        if collector.faults():  # a log lacks something: nothing can be concluded from it
            return False
        ended = collector.ended()
        if watch.look(ended) is not None:
            return True
        if ended and not watch.waiting() and time.monotonic() >= next_look:
            stuck = look_at(agent, collector, run_dir, {})
            found = judge(stuck, stuck, {})
            waits = found.code == "DTL-INIT" and all(one.state != "running" for one in stuck)
            if waits and seen:
                watch.diagnosis = found
                return True
            seen = waits
            next_look = time.monotonic() + (_NEXT_LOOK if waits else _FIRST_LOOK)
        return False

    return at_fault


def find_error(
    agent: AgentClient,
    collector: Collector,
    run_dir: Path,
    watch: Watch,
    timeout: float | None,
    source: Source = no_source,
) -> RankError | RanksTimeout | None:
    """The error of a run that is to be ended now; None if all ranks finished and their calls fit.

    Args:
        agent, collector, run_dir, watch: of the run.
        timeout: the time limit in seconds, if it has passed; None otherwise.
        source: see `stacks.read_stack`.
    """
    error: RankError | RanksTimeout | None = None
    failures = collector.failures()
    diagnosis = watch.last_look(collector.ended()) if not collector.faults() else None
    if diagnosis and comes_before(diagnosis, failures):
        error = RanksDisagree(diagnosis, output={r: s.output.text() for r, s in enumerate(collector.ranks)})
    elif failures:
        error = explain_failures(failures, collector, watch.waiting())
    elif timeout is not None:
        error = explain_timeout(agent, collector, run_dir, watch, timeout, source)
    if error is not None:
        error.last_calls = watch.last_calls()
    return error
