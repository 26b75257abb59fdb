"""What a job of ch11.simulator leads to, and what wrong simulators make of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ._jobs import Job
from ._schedules import Action, Played, needs, peaks, play


def _busy(job: Job) -> list[int]:
    return [sum(job["times"][op][s] for s, op, _ in order) for order in job["orders"]]


def play_job(job: Job, needed: Any = needs, delay: Any = None, times: Any = None) -> Played:
    def transfer(a: Action, rank: int) -> int:
        return int(job["transfer"] * (job["placement"][a[0]] != rank))

    cost = times or (lambda a: job["times"][a[1]][a[0]])
    return play(job["orders"], job["placement"], cost, delay or transfer, needed)


def _results(job: Job, played: Played) -> dict[str, Any]:
    idle = [played.makespan - busy for busy in _busy(job)]
    return {"makespan": played.makespan, "idle": idle, "peak": peaks(job["orders"])}


def right(job: Job) -> dict[str, Any]:
    return _results(job, play_job(job))


def _alone(action: Action, num_stages: int) -> Any:
    """A backward pass that needs only what its own stage did."""
    return needs(action, num_stages)[:1] if action[1] in "BI" else needs(action, num_stages)


def _late(action: Action, num_stages: int) -> Any:
    """A backward pass that waits for the W of the next stage, where it is split."""
    stage, _, k = action
    return [n if len(n) == 1 else ((stage + 1, "B", k), (stage + 1, "W", k)) for n in needs(action, num_stages)]


def _blocking(job: Job) -> Played:
    """The rank is busy while its results travel."""
    placement = job["placement"]

    def cost(a: Action) -> int:
        to = a[0] + 1 if a[1] == "F" else a[0] - 1
        travels = a[1] != "W" and 0 <= to < len(placement) and placement[to] != placement[a[0]]
        return int(job["times"][a[1]][a[0]] + job["transfer"] * travels)

    return play_job(job, delay=lambda a, rank: 0, times=cost)


def _ends(job: Job, first: bool) -> list[int]:
    """Idle time up to each rank's last action; `first`: from its first action on."""
    played = play_job(job)
    spans = [played.end[o[-1]] - (played.start[o[0]] if first else 0) for o in job["orders"]]
    return [span - busy for span, busy in zip(spans, _busy(job), strict=True)]


def _last_of(job: Job, rank: int) -> int:
    return play_job(job).end[job["orders"][rank][-1]]


def _most_microbatches(job: Job) -> list[int]:
    """The most micro-batches of which a rank holds anything."""
    found = []
    for order in job["orders"]:
        live, most = set[Any](), 0
        for s, op, k in order:
            live = live | {(s, k)} if op == "F" else live - {(s, k)} if op in "BW" else live
            most = max(most, len({k for _, k in live}))
        found.append(most)
    return found


def _ties(job: Job) -> list[int]:
    """Peaks, if what starts is counted before what ends at the same time."""
    played, found = play_job(job), []
    for order in job["orders"]:
        changes = [(played.start[a], 0) for a in order if a[1] == "F"] + [
            (played.end[a], 1) for a in order if a[1] in "BW"
        ]
        lives = [1 - 2 * ends for _, ends in sorted(changes)]
        found.append(max(itertools.accumulate(lives)))
    return found


Way = Callable[[Job], Any]
_DELAYS: dict[str, Callable[[Job], Any]] = {
    "`transfer` is left out": lambda j: lambda a, rank: 0,
    "`transfer` is added on the same rank, too: there a result is at hand at once": (
        lambda j: lambda a, rank: j["transfer"]
    ),
    "`transfer` is added to results of forward passes only: gradients travel, too": (
        lambda j: lambda a, rank: j["transfer"] * (j["placement"][a[0]] != rank) * (a[1] == "F")
    ),
    "`transfer` is added once, whatever its length is": lambda j: lambda a, rank: j["placement"][a[0]] != rank,
}
_NEEDS: dict[str, Any] = {
    "a B, or an I, does not wait for that of the next stage, from which its gradient comes": _alone,
    "the B or I of a stage waits for the W of the next stage: it needs its I only": _late,
    "actions wait for nothing but their rank: they need the results of others": lambda action, num_stages: [],
}
# Of each key: the code, what is said, and what it leads to. A makespan may be wrong by any of the others as well.
WAYS: dict[str, list[tuple[str, str, Way]]] = {
    "makespan": [
        *(("TRANSFER", text, lambda j, d=d: play_job(j, delay=d(j)).makespan) for text, d in _DELAYS.items()),
        (
            "TRANSFER",
            "the rank that sends is busy while its result travels: it goes on with its next action",
            lambda j: _blocking(j).makespan,
        ),
        *(("DEPENDENCY", text, lambda j, n=n: play_job(j, n).makespan) for text, n in _NEEDS.items()),
        (
            "STAGE-TIMES",
            "the times of stage 0 are taken for those of all stages",
            lambda j: play_job(j, times=lambda a: j["times"][a[1]][0]).makespan,
        ),
        (
            "STAGE-TIMES",
            "`times` is read by rank: it has a time for each stage",
            lambda j: play_job(j, times=lambda a: j["times"][a[1]][j["placement"][a[0]]]).makespan,
        ),
        ("MAKESPAN", "it is the longest busy time of a rank: gaps count, too", lambda j: max(_busy(j))),
        ("MAKESPAN", "it is the sum of all times: ranks work at once", lambda j: sum(_busy(j))),
        ("MAKESPAN", "it is when rank 0 ends: another may end later", lambda j: _last_of(j, 0)),
        ("MAKESPAN", "it is when the last rank ends: another may end later", lambda j: _last_of(j, -1)),
    ],
    "idle": [
        ("IDLE", "only gaps between a rank's first action and its last are counted", lambda j: _ends(j, True)),
        (
            "IDLE",
            "the time after a rank's last action is left out: it counts up to the makespan",
            lambda j: _ends(j, False),
        ),
        (
            "IDLE",
            "the time before a rank's first action is left out: it counts from 0",
            lambda j: [i - play_job(j).start[o[0]] for i, o in zip(right(j)["idle"], j["orders"], strict=True)],
        ),
        ("IDLE", "these are the busy times: idle is the rest up to the makespan", _busy),
        (
            "IDLE",
            "it is a share of the makespan: asked is a time",
            lambda j: [i / right(j)["makespan"] for i in right(j)["idle"]],
        ),
    ],
    "peak": [
        ("LIVE", "an I ends the activation here: its W still needs it", lambda j: peaks(j["orders"], "BI")),
        ("LIVE", "a W does not end an activation here: it does", lambda j: peaks(j["orders"], "B")),
        (
            "LIVE",
            "the I and the W of a micro-batch each end one here: only the W does",
            lambda j: peaks(j["orders"], "BIW"),
        ),
        ("LIVE", "activations are never freed here", lambda j: peaks(j["orders"], "")),
        (
            "LIVE",
            "the live activations after each backward pass are counted: most are there before one",
            lambda j: [p - 1 for p in peaks(j["orders"])],
        ),
        ("LIVE", "an F that starts when a B or a W ends is counted before that: what ends then is free", _ties),
        ("LIVE", "the peak of all ranks is given for each", lambda j: [max(peaks(j["orders"]))] * len(j["orders"])),
        ("LIVE", "micro-batches are counted: each stage of a rank keeps its own of them", _most_microbatches),
    ],
}
