"""`Link`: an emulated interconnect. It makes what the ranks really send take as long as it would on that link.

    dtlearn.run_ranks(step, 4, link=Link(latency=50e-6, bandwidth=125e6))     # every rank behind 1 Gb/s Ethernet
    world = dtlearn.world(4, link=Link.named("10 Gb/s"))
    world.link = Link.named("internet")                                       # for the cells from now on
    Link(30e-6, 1.25e9, inside=Link(3.4e-6, 50e9), ranks_per_node=2)          # two levels: nodes of 2 ranks

The data really travels, by gloo, and is the same as without a link; only the end of each call is held back. So
communication overlaps with computation in wall-clock time as it would on a cluster, for torch's own DDP, FSDP2 and
DTensor too. The rules:

- A transfer takes the time of the formulas in `link/cost.py`. It starts when every rank that takes part has entered
  the call and has its port free, and it ends on all of them at the same instant. It cannot end before the real
  transfer does: the emulated link is never faster than this machine (of the order of 1 GB/s).
- Each rank has one port (with two levels: one for its node, one to other nodes). It sends and receives at the same
  time, but only one transfer each way: calls that are made at once queue, in the order in which they can start.
- A message occupies the sender's and the receiver's port for n/B; the send is then done, and the receiver has it one
  latency later. As in gloo and NCCL, nothing moves before the receive is posted.
- A rank whose real part is done before all have entered, such as a broadcast's root with a late grandchild, does not
  wait for them: for it the transfer started when it entered.

Not in the model: congestion in switches, links that share one wire in both directions, lost packets, the cost of
summing, algorithms that change with the size of the message, and the store (rendezvous, `new_group`).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ..device import Placement
from ..record.operations import P2P_OPS
from .cost import Connection, LinkedGroup, seconds

# (latency in seconds, bandwidth in bytes a second). Bandwidths are nominal. Latencies between machines are round
# figures: half of what `ping` shows there. Those of NVLink and InfiniBand are the ring's, protocol Simple, in NCCL's
# own cost model (src/graph/tuning.cc, hwLat); NVLink is an A100's 600 GB/s both ways together, InfiniBand is HDR.
_NAMED = {
    "internet": (20e-3, 12.5e6),
    "100 Mb/s": (100e-6, 12.5e6),
    "1 Gb/s": (50e-6, 125e6),
    "10 Gb/s": (30e-6, 1.25e9),
    "InfiniBand": (14e-6, 25e9),
    "NVLink": (3.4e-6, 300e9),
}


@dataclass(frozen=True)
class Link:
    """How the ranks are connected.

    Args:
        latency: seconds that a message of no bytes takes.
        bandwidth: bytes per second, each way, of one rank's port.
        inside: the links between ranks of one node; this one is then between nodes.
        ranks_per_node: how many ranks in a row make a node; needed with `inside`.

    Raises:
        ValueError: a value that no link can have.
    """

    latency: float = 50e-6
    bandwidth: float = 125e6
    inside: "Link | None" = None
    ranks_per_node: int | None = None

    def __post_init__(self) -> None:
        if not _number(self.latency) or not 0 <= self.latency <= 10:
            raise ValueError(f"latency must be a number of seconds from 0 to 10, such as 50e-6; got {self.latency!r}")
        if not _number(self.bandwidth) or not 1e3 <= self.bandwidth < math.inf:
            raise ValueError(
                f"bandwidth must be a number of bytes per second, at least 1000; got {self.bandwidth!r} "
                "(1 Gb/s is 125e6)"
            )
        if self.inside is not None and (not isinstance(self.inside, Link) or self.inside.inside is not None):
            raise ValueError(f"inside must be a Link of one level; got {self.inside!r}")
        n = self.ranks_per_node
        if (n is None) != (self.inside is None):
            raise ValueError("inside=Link(...) and ranks_per_node=N belong together: give both or neither")
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
            raise ValueError(f"ranks_per_node must be a whole number from 1; got {n!r}")

    @classmethod
    def named(cls, name: str) -> Self:
        """A link with usual figures. Raises ValueError, listing the names, for another one.

        "internet", "100 Mb/s", "1 Gb/s", "10 Gb/s"; and "InfiniBand", "NVLink" for `seconds` only: they are faster
        than this machine, so ranks that run with them show next to no delay.
        """
        if name not in _NAMED:
            raise ValueError(f"a link has one of the names {', '.join(map(repr, _NAMED))}; got {name!r}")
        return cls(*_NAMED[name])

    def __str__(self) -> str:
        outer = f"{_rate(self.bandwidth)}, {_time(self.latency)}"
        if self.inside is None:
            return outer
        return f"{outer}; inside nodes of {self.ranks_per_node}: {self.inside}"

    @property
    def label(self) -> str:
        """What every figure that was made with it says."""
        return f"emulated link: {self}"

    def layout(self, ranks: Sequence[int]) -> LinkedGroup:
        """The nodes that a group's ranks (global) are in, and their links."""
        nodes = Counter(rank // self.ranks_per_node for rank in ranks) if self.ranks_per_node else None
        inner = self.inside or self
        if nodes is None or len(set(nodes.values())) > 1:
            return LinkedGroup(self._level(len(ranks)), inner._level(1))
        return LinkedGroup(self._level(len(nodes)), inner._level(len(ranks) // len(nodes)))

    def between(self, rank: int, other: int) -> Connection:
        """The connection of two ranks."""
        return self._level(2) if self.crosses(rank, other) else (self.inside or self)._level(2)

    def crosses(self, rank: int, other: int) -> bool:
        """Whether two ranks are in different nodes (without two levels: always)."""
        return self.ranks_per_node is None or rank // self.ranks_per_node != other // self.ranks_per_node

    def seconds(self, op: str, nbytes: float, ranks: int | Sequence[int] = 2) -> float:
        """What the model says that an operation takes, also for clusters that this machine cannot play.

        Args:
            op: name in `torch.distributed`: "all_reduce", "broadcast", "send", ...
            nbytes: what a rank hands in, in bytes; for a scatter, what its root hands in.
            ranks: how many, counted from rank 0, or which. For "send" and "recv": the two.

        Raises:
            ValueError: an operation that has no formula, or a message of other than two ranks.
        """
        which = list(range(ranks)) if isinstance(ranks, int) else list(ranks)
        if op in P2P_OPS:
            if len(which) != 2:
                raise ValueError(f"a message is between two ranks; got ranks={ranks!r}")
            return self.between(*which).message(nbytes)
        return seconds(op, nbytes, self.layout(which))

    def _level(self, width: int) -> Connection:
        return Connection(width, self.latency, self.bandwidth)

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Self:
        """A link from `dataclasses.asdict` of it: as plain values it goes to a rank."""
        return cls(**{**data, "inside": data["inside"] and cls.from_plain(data["inside"])})


def connect(placement: Placement, link: object) -> Placement:
    """The placement of ranks that talk over `link` (None: over what is there), which its label then says.

    Raises ValueError if `link` is no Link, or the ranks use GPUs.
    """
    if link is None:
        return replace(placement, link="")
    if not isinstance(link, Link):
        raise ValueError(f"link must be a dtlearn.Link, such as Link.named('1 Gb/s'); got {link!r}")
    if placement.backend != "gloo" or set(placement.devices) != {"cpu"}:
        raise ValueError(
            'an emulated link works with gloo on CPU: what GPUs send runs on their own streams. Add device="cpu".'
        )
    return replace(placement, link=link.label)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _rate(bandwidth: float) -> str:
    bits = 8 * bandwidth
    return f"{bits / 1e9:g} Gb/s" if bits >= 1e9 else f"{bits / 1e6:g} Mb/s"


def _time(latency: float) -> str:
    return f"{latency * 1e3:g} ms" if latency >= 1e-3 else f"{latency * 1e6:g} us"
