"""What became of every planted fault, with date and versions: under torchrun a scenario takes up to half a minute.

python -m dtlearn.production.fault_stories.stored    # run all again; as root, for the lost node
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..faults import SCENARIOS, Detection, FaultStory, run_scenario, why_not
from ..faults.scenarios import LAUNCHERS

FILE = Path(__file__).with_suffix(".json")
ON_HOSTS = "node_lost"  # torchrun alone has it


@dataclass(frozen=True)
class StoredStory:
    """What a scenario came to.

    Attributes:
        name, launcher: see `run_scenario`.
        worlds: how many ranks each attempt had.
        detections: who noticed it, after how long.
        restart_seconds: from the fault to the end of the first step of the next attempt; None: there was no other one.
        repeated_steps: that were made twice.
        last_step: the last step that was made.
        missing: what the flight recorders say.
        error: why the job was given up; "" if it finished.
    """

    name: str
    launcher: str
    worlds: tuple[int, ...]
    detections: tuple[Detection, ...]
    restart_seconds: float | None
    repeated_steps: int
    last_step: int
    missing: tuple[str, ...]
    error: str


@dataclass(frozen=True)
class StoredStories:
    """All stored stories.

    Attributes:
        date: when they were run, "2026-11-27".
        versions: of Python and torch.
        processors: of the machine.
        stories: one after the other.
    """

    date: str
    versions: Mapping[str, str]
    processors: int
    stories: tuple[StoredStory, ...]

    def select(self, name: str, launcher: str) -> StoredStory:
        """The story of that name.

        Raises:
            ValueError: there is none.
        """
        for story in self.stories:
            if (story.name, story.launcher) == (name, launcher):
                return story
        names = sorted({f"{story.name} under {story.launcher}" for story in self.stories})
        raise ValueError(f"no story of {name!r} under {launcher!r} is stored; there are {', '.join(names)}")

    @property
    def detections(self) -> list[Detection]:
        """The detections of all stories."""
        return [detection for story in self.stories for detection in story.detections]


def in_short(story: FaultStory) -> StoredStory:
    """The part of a story that is stored."""
    return StoredStory(
        story.name,
        story.launcher,
        story.worlds,
        story.detections,
        story.restart_seconds,
        story.repeated_steps,
        max(story.losses, default=-1),
        story.missing,
        story.error,
    )


def run_all(names: Iterable[str] = SCENARIOS) -> StoredStories:
    """Run every scenario under every launcher; minutes. A lost node only where hosts can be played."""
    stories = [
        in_short(run_scenario(name, launcher=launcher))
        for name in names
        for launcher in (LAUNCHERS if name != ON_HOSTS else LAUNCHERS[1:])
        if name != ON_HOSTS or not why_not()
    ]
    versions = {"python": platform.python_version(), "torch": torch.__version__.partition("+")[0]}
    return StoredStories(datetime.date.today().isoformat(), versions, os.cpu_count() or 1, tuple(stories))


def load_stories(file: Path = FILE) -> StoredStories:
    """Read the stored stories."""
    kept: dict[str, Any] = json.loads(file.read_text("utf-8"))
    stories = tuple(
        StoredStory(
            **{
                **story,
                "worlds": tuple(story["worlds"]),
                "missing": tuple(story["missing"]),
                "detections": tuple(Detection(*detection) for detection in story["detections"]),
            }
        )
        for story in kept.pop("stories")
    )
    return StoredStories(**kept, stories=stories)


def write_stories(stories: StoredStories, file: Path = FILE) -> None:
    """Keep them, a line for each story."""
    head = {name: value for name, value in asdict(stories).items() if name != "stories"}
    lines = ",\n".join(json.dumps(asdict(story)) for story in stories.stories)
    file.write_text(f'{json.dumps(head)[:-1]}, "stories": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    write_stories(run_all())
