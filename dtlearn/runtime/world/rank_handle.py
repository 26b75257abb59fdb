"""What a world holds of each of its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from ..agent.collector import Collector
from ..faults.failure import Failure
from .rank_client import RankLink


@dataclass
class RankProcess:
    """One rank of a world: its process, its line, and whoever hears of its death."""

    collector: Collector
    index: int  # in the collector
    link: RankLink

    @property
    def pid(self) -> int:
        return self.collector.ranks[self.index].pid

    @property
    def alive(self) -> bool:
        return self.collector.ranks[self.index].status is None

    @property
    def death(self) -> Failure | None:
        """How it ended; None while it lives."""
        return None if self.alive else self.collector.ranks[self.index].failure

    def close(self) -> None:
        """Give up what this process holds of a rank that has ended."""
        self.link.close()
        self.collector.leave(self.index)
