"""What one step sends, by formula: through servers, in a ring, and among neighbours; and the link that is hot.

n bytes of parameters, N workers, S servers. A worker pulls n and pushes n; a server answers N workers and hears N, so
that its link carries 2Nn/S, 2Nn if it is alone. Each rank of a ring all-reduce sends and receives 2n(N-1)/N, whatever N
is (Patarasuk and Yuan, 2009). A rank that gossips sends n to each neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .gossip.mixing import Mixing


@dataclass(frozen=True)
class RankTraffic:
    """What a rank has to do with in one step.

    Attributes:
        sent, received: bytes.
        messages: sent and received.
    """

    sent: float
    received: float
    messages: int

    @property
    def nbytes(self) -> float:
        """Bytes sent and received, together."""
        return self.sent + self.received


def server_traffic(shards: Sequence[int], num_workers: int, header: int = 0) -> list[RankTraffic]:
    """The traffic of each rank, the servers first: every worker pulls all parameters and pushes all gradients once.

    Beside the two tensors, three headers travel between each worker and server: to ask, to answer, and to push.

    Args:
        shards: bytes that each server holds; they sum to n.
        num_workers: N.
        header: bytes of one; 0: count parameters and gradients alone.

    Raises:
        ValueError: no server, or no worker.
    """
    if not shards or num_workers < 1:
        raise ValueError(f"a server and a worker are needed; got shards {list(shards)} and {num_workers} workers")
    n, num_servers = sum(shards), len(shards)
    servers = [
        RankTraffic(num_workers * (shard + header), num_workers * (shard + 2 * header), 5 * num_workers)
        for shard in shards
    ]
    worker = RankTraffic(n + 2 * header * num_servers, n + header * num_servers, 5 * num_servers)
    return servers + [worker] * num_workers


def ring_traffic(nbytes: int, num_ranks: int) -> list[RankTraffic]:
    """The traffic of each rank in a step whose gradients are averaged by a ring all-reduce.

    Raises:
        ValueError: no rank.
    """
    if num_ranks < 1:
        raise ValueError(f"a ring has one rank or more; got {num_ranks}")
    part = 2 * nbytes * (num_ranks - 1) / num_ranks
    return [RankTraffic(part, part, 4 * (num_ranks - 1))] * num_ranks


def gossip_traffic(nbytes: int, mixing: Mixing, step: int = 0) -> list[RankTraffic]:
    """The traffic of each rank in one step of D-PSGD."""
    traffic = []
    for rank in range(mixing.num_ranks):
        targets, sources = len(mixing.targets(step, rank)), len(mixing.sources(step, rank))
        traffic.append(RankTraffic(nbytes * targets, nbytes * sources, targets + sources))
    return traffic


def hot_link(traffic: Sequence[RankTraffic]) -> tuple[int, float]:
    """The rank whose link carries most in a step, the first of several, and the bytes, both ways together."""
    rank = max(range(len(traffic)), key=lambda rank: (traffic[rank].nbytes, -rank))
    return rank, traffic[rank].nbytes


def least_seconds(traffic: Sequence[RankTraffic], bandwidth: float, overlap: bool = False) -> float:
    """No step can be faster than its hottest link, of `bandwidth` bytes per second each way.

    Args:
        traffic: of each rank.
        bandwidth: of each rank's link.
        overlap: False: what a rank sends and what it receives follow each other, as a pull and a push of a synchronous
            step do. True: they can travel at once, as in a ring, where workers do not wait for each other, and where
            tensors are cut into pieces: the first is pulled while the second is pushed (BytePS).
    """
    return max(max(t.sent, t.received) if overlap else t.nbytes for t in traffic) / bandwidth
