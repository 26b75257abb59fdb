"""Scenarios: a job, a fault on one of its ranks, and the story of what follows."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dtlearn.runtime.machine.run_folder import run_directory

from .flight import MissingCall, missing_calls, read_trace
from .heartbeat import HeartbeatMonitor, host_store
from .on_run_ranks import restart_on_run_ranks
from .on_torchrun import restart_on_torchrun
from .plan import JobPlan
from .plants import Plant
from .story import Detection, FaultStory, StoryLog, read_events
from .two_hosts import Hosts, lose_a_node

LAUNCHERS = ("run_ranks", "torchrun")
SILENCE = STALL = 1.0  # seconds; on a machine with much else to do a rank may be silent for a while
GROUP_TIMEOUT = 4.0
_RANKS_PER_NODE = 2


@dataclass(frozen=True)
class Scenario:
    """What is planted, and what is done about it.

    Attributes:
        says: what happens, in a sentence.
        kind: of the fault, see `Plant`.
        check: the check that finds it, see `JobPlan`; "": it needs none.
        check_every: steps between two checks.
        fewer: ranks less when the course's own restart goes on.
        acts: whether the supervisor kills the rank that the heartbeat, or the flight recorder, names.
        restarts: whether the ranks are started again.
    """

    says: str
    kind: str
    check: str = ""
    check_every: int = 1
    fewer: int = 0
    acts: bool = False
    restarts: bool = True


SCENARIOS = {
    "kill": Scenario("A rank is killed, and the job goes on from the newest checkpoint.", "kill"),
    "lost_rank": Scenario("A rank is killed for good, and the job goes on with one rank less.", "kill", fewer=1),
    "hang": Scenario("A rank hangs, and the others' collective gives up after its time-out.", "hang"),
    "watched_hang": Scenario("A rank hangs; the flight recorder names it, and it is killed.", "hang", acts=True),
    "stop": Scenario("A process is stopped, its heartbeat falls silent, and it is killed.", "stop", acts=True),
    "skip": Scenario("A rank leaves a collective out; the watch sees that the calls do not fit.", "skip"),
    "memory": Scenario("A rank runs out of memory.", "memory"),
    "nan": Scenario("A rank sends NaN; all ranks leave that update out.", "nan", check="finite", restarts=False),
    "flip_parameter": Scenario(
        "A bit of one rank's parameters flips; checksums of the replicas differ.",
        "flip_parameter",
        check="replicas",
        fewer=1,
    ),
    "flip_gradient": Scenario(
        "A bit of one rank's gradient flips once; a replay of that step on other ranks differs.",
        "flip_gradient",
        check="replay",
        fewer=1,
    ),
    "scale_gradient": Scenario(
        "A rank's gradients are 1 % too large from a step on; a replay finds it when it looks next.",
        "scale_gradient",
        check="replay",
        check_every=3,
        fewer=1,
    ),
    "node_lost": Scenario("A host loses its network; torchrun goes on with the other host's ranks.", "cut"),
}


def run_scenario(
    name: str,
    *,
    launcher: str = "run_ranks",
    ranks: int = 3,
    rank: int = 1,
    step: int = 4,
    steps: int = 8,
    check: bool | str = True,
    acts: bool | None = None,
    timeout: float = 120.0,
) -> FaultStory:
    """Run a job on real processes, plant a fault, and return what happened.

    Args:
        name: one of `SCENARIOS`.
        launcher: "run_ranks" (the course's own restart) or "torchrun". "node_lost" has torchruns on two hosts with
            two ranks each, whatever is said here; it takes root.
        ranks, steps: of the job.
        rank, step: where and when the fault strikes; of "node_lost" the rank is 2, on the second host.
        check: False: nobody looks at the numbers, and what is wrong in them goes unnoticed; a name: that check of
            `JobPlan` looks, and not the scenario's.
        acts: whether the supervisor acts on what it notices; None: as the scenario says.
        timeout: seconds for each start under `run_ranks`, and for all of it under torchrun.

    Raises:
        ValueError: there is no such scenario or launcher, the fault would never strike, or hosts cannot be played here.
    """
    if name not in SCENARIOS or launcher not in LAUNCHERS:
        raise ValueError(
            f"a scenario is one of {', '.join(SCENARIOS)}, a launcher one of {', '.join(LAUNCHERS)}; "
            f"got {name!r} with {launcher!r}"
        )
    scenario = SCENARIOS[name]
    lost_node = scenario.kind == "cut"
    if lost_node:
        ranks, rank, launcher = 2 * _RANKS_PER_NODE, _RANKS_PER_NODE, "torchrun"
    if not 0 <= rank < ranks or not 0 <= step < steps or ranks < 2:
        raise ValueError(
            f"the fault must strike one of 2 or more ranks in one of the steps; got rank {rank} of {ranks}, "
            f"step {step} of {steps}"
        )
    acts = scenario.acts if acts is None else acts
    restarts = int(scenario.restarts and (bool(check) or not scenario.check))
    with run_directory() as folder, contextlib.ExitStack() as closing:
        hosts = closing.enter_context(Hosts()) if lost_node else None
        begun = time.monotonic()
        log = StoryLog(folder, -1, 0)
        closing.callback(log.close)
        supervisor = closing.enter_context(_watching(folder, ranks, restarts + 1, log, acts))
        plan = JobPlan(
            str(folder),
            steps=steps,
            group_timeout=GROUP_TIMEOUT,
            check=check if isinstance(check, str) else scenario.check if check else "",
            check_every=scenario.check_every,
            port=supervisor,
            stall=STALL,
            plant=Plant(scenario.kind, rank, step),
        )
        if hosts is not None:
            error = lose_a_node(plan, _RANKS_PER_NODE, log, hosts, timeout)
        elif launcher == "torchrun":
            error = restart_on_torchrun(plan, ranks, log, max_restarts=restarts, timeout=timeout)
        else:
            error = restart_on_run_ranks(plan, ranks, log, max_restarts=restarts, fewer=scenario.fewer, timeout=timeout)
        events = read_events(folder, begun)
        missing = missing_in(folder, 0, ranks)
    joined = {attempt: {e.rank for e in events if e.what == "joined" and e.attempt == attempt} for attempt in range(4)}
    faulty = tuple(range(_RANKS_PER_NODE, ranks)) if lost_node else (rank,)
    worlds = tuple(len(of_attempt) for of_attempt in joined.values() if of_attempt)
    return FaultStory(name, launcher, faulty, events, worlds, tuple(map(str, missing)), error)


def detection_times(
    names: Iterable[str] = ("kill", "hang", "memory"), launchers: Iterable[str] = LAUNCHERS
) -> list[Detection]:
    """Who noticed each fault, and after how long, from a run of each in which the supervisor does not act."""
    stories = [run_scenario(name, launcher=launcher, acts=False) for name in names for launcher in launchers]
    return [detection for story in stories for detection in story.detections]


def missing_in(folder: Path, attempt: int, ranks: int) -> list[MissingCall]:
    """What the flight recorders say that the ranks of an attempt have left in the folder."""
    dumps = {rank: folder / f"flight-{attempt}-{rank}" for rank in range(ranks)}
    calls = {rank: read_trace(file.read_bytes()) for rank, file in dumps.items() if file.exists()}
    return missing_calls(calls, ranks) if calls else []


@contextlib.contextmanager
def _watching(folder: Path, ranks: int, attempts: int, log: StoryLog, acts: bool) -> Iterator[int]:
    """Watch the heartbeats of a job. Yields the port of their store."""

    def late(attempt: int, rank: int | None, by: str) -> None:
        log("noticed", attempt=attempt, by=by, about=rank)
        if by == "progress" and rank is None:
            rank = _ask_flight_recorders(folder, attempt, ranks, log)
        pid = None if rank is None else monitor.pid(attempt, rank)
        if acts and pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
                log("killed", attempt=attempt, about=rank)

    store = host_store()
    monitor = HeartbeatMonitor(store, ranks, attempts, SILENCE, STALL, late)
    try:
        yield store.port
    finally:
        monitor.stop()


def _ask_flight_recorders(folder: Path, attempt: int, ranks: int, log: StoryLog) -> int | None:
    """The rank that the others wait for, once all ranks that can have left their dumps."""
    until = time.monotonic() + STALL
    while len(list(folder.glob(f"flight-{attempt}-*"))) < ranks and time.monotonic() < until:
        time.sleep(0.02)
    named = {rank for call in missing_in(folder, attempt, ranks) for rank in call.missing or call.unheard}
    if len(named) != 1:
        return None
    log("noticed", attempt=attempt, by="flight recorder", about=min(named))
    return min(named)
