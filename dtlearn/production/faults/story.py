"""A fault and what followed, as data: who did what when, who noticed it, and how long it took to train again.

Ranks write one line for each event into a file of their own, so that nothing is lost when they are killed; whoever
started them writes into another. All times are of the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

SUPERVISOR = -1  # the rank that stands for whoever started the ranks


@dataclass(frozen=True)
class StoryEvent:
    """Something that happened to a job.

    Attributes:
        seconds: since the job was started.
        rank: which rank says so, by its number in that attempt; -1: whoever started the ranks.
        attempt: how often the job had been restarted by then.
        what: "start" (ranks are asked for), "joined" (the rank is in a group), "resumed" (from the state after `step`
            steps), "step", "skipped" (a step without an update), "saving", "saved", "fault" (it is planted here),
            "noticed", "cut" (the plug is pulled), "killed" (by the supervisor), "ended" (a rank leaves with an error),
            "finished".
        step: steps made by then; of a "step" the number of the step, from 0.
        loss: of a "step".
        by: of "noticed": "launcher", "heartbeat", "progress", "connection", "time-out", "watch", "check", "itself",
            "flight recorder".
        about: of "noticed": the rank that is named; None: nobody is.
        detail: more, in words.
    """

    seconds: float
    rank: int
    attempt: int
    what: str
    step: int | None = None
    loss: float | None = None
    by: str = ""
    about: int | None = None
    detail: str = ""


class Detection(NamedTuple):
    """How long a fault lasted until somebody noticed it.

    Attributes:
        fault, launcher: which scenario, and what had started the ranks.
        noticer: as `StoryEvent.by`.
        names_rank: whether the notice names the faulty rank.
        seconds: from the fault to the first notice of that kind.
    """

    fault: str
    launcher: str
    noticer: str
    names_rank: bool
    seconds: float


@dataclass(frozen=True)
class FaultStory:
    """What a scenario left behind.

    Attributes:
        name, launcher: the scenario, and what started the ranks ("run_ranks" or "torchrun").
        ranks: where the fault was planted; of a lost node, all of its ranks.
        events: all of them, by time.
        worlds: how many ranks each attempt had.
        missing: which ranks miss which collective call, by PyTorch's flight recorder, a sentence each.
        error: why the job was given up; "" if it finished.
    """

    name: str
    launcher: str
    ranks: tuple[int, ...]
    events: tuple[StoryEvent, ...]
    worlds: tuple[int, ...]
    missing: tuple[str, ...] = ()
    error: str = field(default="")

    def select(self, what: str, *, rank: int | None = None, attempt: int | None = None) -> list[StoryEvent]:
        """The events of that kind, of a rank and an attempt (None: any)."""
        return [e for e in self.events if e.what == what and rank in (None, e.rank) and attempt in (None, e.attempt)]

    @property
    def losses(self) -> dict[int, float]:
        """The loss of each step; for a step that was made twice, that of the last time."""
        return {e.step: e.loss for e in self.select("step") if e.step is not None and e.loss is not None}

    @property
    def fault(self) -> StoryEvent | None:
        """When the fault was planted; None if it never came to that."""
        return next(iter(self.select("fault")), None)

    @property
    def detections(self) -> tuple[Detection, ...]:
        """Who noticed the fault, after how long: the first notice of each kind, by time.

        A notice that names another rank than the faulty one speaks of a consequence, and does not count.
        """
        if (fault := self.fault) is None:
            return ()
        first: dict[str, StoryEvent] = {}
        for event in self.select("noticed", attempt=fault.attempt):
            if event.seconds >= fault.seconds and event.about in (None, *self.ranks):
                first.setdefault(event.by, event)
        return tuple(
            Detection(self.name, self.launcher, by, e.about is not None, e.seconds - fault.seconds)
            for by, e in first.items()
        )

    @property
    def restart_seconds(self) -> float | None:
        """Seconds from the fault to the end of the first step of the next attempt; None: there was no other attempt."""
        steps = self.select("step", attempt=1)
        return steps[0].seconds - self.fault.seconds if steps and self.fault else None

    @property
    def repeated_steps(self) -> int:
        """Steps that were made more than once, because the state after them had not been saved."""
        made = [(e.attempt, e.step) for e in self.select("step", rank=0)]
        return len(made) - len({step for _, step in made})

    def by_rank(self) -> dict[int, list[StoryEvent]]:
        """The events of each rank, by time."""
        return {rank: [e for e in self.events if e.rank == rank] for rank in sorted({e.rank for e in self.events})}

    def table(self) -> list[dict[str, Any]]:
        """The events without the single steps, as rows for a table."""
        return [asdict(e) for e in self.events if e.what != "step"]


class StoryLog:
    """Writes events of one process into a file. Each line is there, whatever becomes of the process."""

    def __init__(self, folder: Path, rank: int, attempt: int) -> None:
        self.rank, self.attempt = rank, attempt
        name = f"events-{rank}-{attempt}-{os.getpid()}.jsonl"
        self._fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(
        self, what: str, step: int | None = None, *, now: float | None = None, attempt: int | None = None, **more: Any
    ) -> None:
        """Write one event. `now`: seconds of the monotonic clock; None: now. `attempt`: another one than the log's."""
        seconds = time.monotonic() if now is None else now
        event = StoryEvent(seconds, self.rank, self.attempt if attempt is None else attempt, what, step, **more)
        os.write(self._fd, json.dumps(asdict(event)).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read_events(folder: Path, since: float) -> tuple[StoryEvent, ...]:
    """All events of a folder by time, in seconds after `since`. A line that its writer could not end is left out."""
    events = []
    for file in folder.glob("events-*.jsonl"):
        lines = file.read_bytes().split(b"\n")[:-1]  # what stands after the last line's end is half a line
        events += [StoryEvent(**json.loads(line)) for line in lines]
    return tuple(replace(e, seconds=e.seconds - since) for e in sorted(events, key=lambda e: (e.seconds, e.rank)))


def detection_rows(stories: Sequence[FaultStory]) -> list[Detection]:
    """All detections of several stories, one after the other."""
    return [detection for story in stories for detection in story.detections]
