"""What communication costs: time and bytes of each operation by the alpha-beta model, as pure functions.

A step of an algorithm takes `alpha + bytes / B`: a latency, and the bytes over the bandwidth of one port in one
direction. A port sends and receives at the same time. The algorithms are those of good libraries for large messages:

| operation | algorithm | time for N ranks |
|---|---|---|
| all-reduce of n bytes | ring: reduce-scatter, then all-gather | 2 (N-1) (alpha + n/(N B)) |
| reduce-scatter of n bytes | ring | (N-1) (alpha + n/(N B)) |
| all-gather of shards of s bytes | ring | (N-1) (alpha + s/B) |
| broadcast, reduce of n bytes | binomial tree | ceil(log2 N) (alpha + n/B) |
| gather, scatter of shards of s bytes | binomial tree | ceil(log2 N) alpha + (N-1) s/B |
| all-to-all of n bytes a rank | pairwise exchange | (N-1) (alpha + n/(N B)) |
| barrier | dissemination | ceil(log2 N) alpha |
| send and receive of n bytes | | alpha + n/B |

With two levels, L ranks in each of M nodes, an operation goes level by level: an all-gather first among ranks of equal
place in their nodes (shards of s bytes on the slow link, every port busy), then inside the nodes (M s bytes); a
reduce-scatter the other way round; an all-reduce is both. Trees first span the nodes, then the ranks of a node. Ranks
that are spread unevenly over nodes use the slow link throughout.

Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005 (all but
the hierarchy); Patarasuk and Yuan, 2009 (ring); nccl-tests, doc/PERFORMANCE.md (the same bandwidth terms as "bus
bandwidth" factors).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Connection:
    """One kind of connection: `latency` in seconds, `bandwidth` in bytes/s; `width` ranks (or nodes) talk over it."""

    width: int
    latency: float
    bandwidth: float

    def message(self, nbytes: float) -> float:
        """Seconds from the start of a send until the receiver has the message."""
        return self.latency + nbytes / self.bandwidth

    def ring(self, nbytes: float) -> float:
        """Seconds of `width - 1` steps with that many bytes each."""
        return (self.width - 1) * self.message(nbytes)

    @property
    def doublings(self) -> int:
        """ceil(log2 width): steps of a binomial tree, or of a dissemination barrier."""
        return (self.width - 1).bit_length()


@dataclass(frozen=True)
class LinkedGroup:
    """A group on its links: `between.width` nodes with `inside.width` ranks each."""

    between: Connection
    inside: Connection

    @property
    def size(self) -> int:
        return self.between.width * self.inside.width


def seconds(op: str, nbytes: float, layout: LinkedGroup) -> float:
    """Time of a collective.

    Args:
        op: its name in `torch.distributed`.
        nbytes: payload as `Event.nbytes` counts it: what a rank hands in. For a scatter: what its root hands in.
        layout: the ranks and their links.

    Raises:
        ValueError: an operation that has no formula.
    """
    if op not in _FORMULAS:
        raise ValueError(f"op must be one of {', '.join(sorted(_FORMULAS))}; got {op!r}")
    return _FORMULAS[op](nbytes, layout)


def all_gather(shard: float, on: LinkedGroup) -> float:
    return on.between.ring(shard) + on.inside.ring(on.between.width * shard)


def reduce_scatter(nbytes: float, on: LinkedGroup) -> float:
    return on.inside.ring(nbytes / on.inside.width) + on.between.ring(nbytes / on.size)


def all_reduce(nbytes: float, on: LinkedGroup) -> float:
    return reduce_scatter(nbytes, on) + all_gather(nbytes / on.size, on)


def tree(nbytes: float, on: LinkedGroup) -> float:
    """Broadcast or reduce: the whole payload on every step."""
    return sum(level.doublings * level.message(nbytes) for level in (on.between, on.inside))


def gather(shard: float, on: LinkedGroup) -> float:
    """Seconds to gather into one rank, as its port needs: first inside nodes, then the nodes' parts between them."""
    inside = on.inside.doublings * on.inside.latency + (on.inside.width - 1) * shard / on.inside.bandwidth
    part = on.inside.width * shard
    return inside + on.between.doublings * on.between.latency + (on.between.width - 1) * part / on.between.bandwidth


def scatter(nbytes: float, on: LinkedGroup) -> float:
    return gather(nbytes / on.size, on)


def all_to_all(nbytes: float, on: LinkedGroup) -> float:
    """Each rank exchanges a shard with every other: the ranks of its node, then those of other nodes."""
    shard = nbytes / on.size
    far = on.size - on.inside.width
    return on.inside.ring(shard) + far * on.between.message(shard)


def barrier(_: float, on: LinkedGroup) -> float:
    """Seconds of a barrier: once between nodes; inside them, where there are several, before and after."""
    rounds = 1 if on.between.width == 1 else 2
    return rounds * on.inside.doublings * on.inside.latency + on.between.doublings * on.between.latency


_FORMULAS = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": reduce_scatter,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather,
    "broadcast": tree,
    "reduce": tree,
    "gather": gather,
    "scatter": scatter,
    "all_to_all": all_to_all,
    "all_to_all_single": all_to_all,
    "barrier": barrier,
    "monitored_barrier": barrier,
}
