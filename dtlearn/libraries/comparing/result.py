"""What came of a run under one library, as data that is kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from .traffic import Traffic, total_wire_bytes


@dataclass(frozen=True)
class LibraryResult:
    """A run of one engine.

    Attributes:
        engine: its name in `ENGINES`.
        title: for a reader, such as "DeepSpeed, ZeRO 2".
        losses: mean over the global batch, before each update.
        ranks: of each rank, what it called in the last step.
        state_bytes: of each rank, storages that live between two steps: weights, optimizer state, what is kept.
        peak_bytes: of each rank, the most storages at once in the last step.
        seconds: of a step on rank 0, the fastest of a few; of this machine.
        versions: of the packages that ran, by name.
    """

    engine: str
    title: str
    losses: tuple[float, ...]
    ranks: tuple[tuple[Traffic, ...], ...]
    state_bytes: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def calls(self) -> tuple[Traffic, ...]:
        """What rank 0 called in the last step."""
        return self.ranks[0]

    @property
    def wire_bytes(self) -> float:
        """Bytes that a rank sends in a step if every collective is a ring, the mean over the ranks."""
        return sum(map(total_wire_bytes, self.ranks)) / len(self.ranks)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        ranks = tuple(tuple(Traffic(**{**row, "sizes": tuple(row["sizes"])}) for row in rows) for rows in data["ranks"])
        lists = {name: tuple(data[name]) for name in ("losses", "state_bytes", "peak_bytes")}
        return cls(**{**data, **lists, "ranks": ranks})
