"""Which ranks are servers and which are workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerRoles:
    """The first ranks are servers, all others are workers.

    Args:
        num_servers: servers, 1 or more.
        world_size: ranks, more than that.

    Raises:
        ValueError: there is no server, or no worker.
    """

    num_servers: int
    world_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_servers < self.world_size:
            what = "no server: nobody keeps the parameters" if self.num_servers < 1 else "no worker: nobody trains"
            raise ValueError(
                f"{self.num_servers} of {self.world_size} ranks are servers, so there is {what}. Servers are 1 or "
                "more, and fewer than the ranks"
            )

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self.world_size - self.num_servers

    def is_server(self, rank: int) -> bool:
        """Whether a rank is a server; its number is its rank."""
        return rank < self.num_servers

    def rank_of_worker(self, worker: int) -> int:
        """The rank of a worker, which are counted from 0."""
        return self.num_servers + worker

    def worker_of_rank(self, rank: int) -> int:
        """The number of a worker, from 0, by its rank."""
        return rank - self.num_servers
