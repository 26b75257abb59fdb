"""What the ranks of a job are told: how long to train, what to check, and which fault to plant."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from .plants import Plant

CHECKS = ("", "finite", "replicas", "replay")


@dataclass(frozen=True)
class JobPlan:
    """What the ranks of a job are to do. Plain values: under torchrun it travels as JSON.

    Attributes:
        folder: of event logs, checkpoints and dumps; all ranks share it.
        steps, save_every: steps of the job, and of it between two checkpoints.
        batch: samples of the global batch, split over the ranks there are.
        step_seconds, save_seconds: how long a step and a save take at least: the job's clock, whatever the machine.
        group_timeout: seconds after which a collective gives up.
        check: "" or "finite" (of each gradient), "replicas", "replay" (see `replay`).
        check_every: steps between two checks.
        host, port: of the heartbeats' store; port 0: there are none.
        beat_every, stall: seconds between beats, and on one step until this rank dumps its flight recorder.
        plant: the fault; None: there is none.
        deaths: of each attempt, which rank kills itself after how many seconds of training.
    """

    folder: str
    steps: int = 8
    save_every: int = 2
    batch: int = 24
    step_seconds: float = 0.02
    save_seconds: float = 0.0
    group_timeout: float = 4.0
    check: str = ""
    check_every: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    beat_every: float = 0.1
    stall: float = 1.0
    plant: Plant | None = None
    deaths: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise ValueError(f"check must be one of {', '.join(map(repr, CHECKS))}; got {self.check!r}")
        if min(self.steps, self.save_every, self.batch, self.check_every) < 1 or self.group_timeout <= 0:
            raise ValueError(
                "steps, save_every, batch and check_every must be 1 or more, and group_timeout above 0; "
                f"got {self.steps}, {self.save_every}, {self.batch}, {self.check_every} and {self.group_timeout:g}"
            )

    def fault(self, rank: int, step: int, attempt: int) -> str:
        """The kind of the fault that strikes this rank in this step, or ""."""
        return self.plant.kind if self.plant is not None and self.plant.strikes(rank, step, attempt) else ""

    def to_json(self) -> str:
        """The plan as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobPlan:
        """The plan that `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        plant = fields["plant"] and Plant(**fields["plant"])
        return cls(**{**fields, "plant": plant, "deaths": tuple((r, s) for r, s in fields["deaths"])})
