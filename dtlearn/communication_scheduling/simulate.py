"""Plays a policy of sending over the times of layers: who computes and what is sent when, and how long it takes.

One step from the beginning of backward to the end of the next forward pass, which is what repeats: forward of the last
layer waits for its gradient, so nothing of a step is left when the next backward pass begins. Seconds throughout; 0 is
when backward begins. All ranks are alike.

The link runs one transfer after the other, in the order in which they were launched, as a communicator does. What a
transfer costs is for a function to say: `lambda nbytes: link.seconds("all_reduce", nbytes, num_ranks)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from dtlearn.runtime.record.intervals import length, without

from .policy import GradientPartition, SchedulingPolicy, partitions_of

BACKWARD, TRANSFERS, FORWARD = "backward", "transfers", "forward"  # the lanes
TransferSeconds = Callable[[float], float]  # what the transfer of so many bytes takes


@dataclass(frozen=True)
class LayerTimes:
    """What each layer costs; all three in the order of the forward pass.

    Args:
        forward: seconds of its forward pass, the optimizer's step of its parameters included.
        backward: seconds of its backward pass.
        nbytes: of its gradient.

    Raises:
        ValueError: lengths that differ, no layer, or a negative number.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    nbytes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.forward) == len(self.backward) == len(self.nbytes) > 0:
            counts = f"{len(self.forward)}, {len(self.backward)} and {len(self.nbytes)}"
            raise ValueError(f"each layer needs a forward time, a backward time and a size; got {counts} of them")
        if min([*self.forward, *self.backward, *self.nbytes]) < 0:
            raise ValueError("times and sizes of layers must not be negative")

    @property
    def compute(self) -> float:
        """Seconds of all computation."""
        return sum(self.forward) + sum(self.backward)


class LaneSpan(NamedTuple):
    """What a lane is busy with: a layer, from `start` to `end`. A layer in partitions has a span for each."""

    lane: str
    layer: int
    start: float
    end: float


class SentPartition(NamedTuple):
    """A partition on its way.

    Attributes:
        ready: when its gradient was there.
        launched: when it was issued; it cannot be overtaken from then on.
        start, end: of its transfer. In a recorded run `start` is when it was launched and the one before had ended.
    """

    partition: GradientPartition
    ready: float
    launched: float
    start: float
    end: float


@dataclass(frozen=True)
class ScheduledStep:
    """Backward, transfers and the next forward pass, simulated or recorded.

    Attributes:
        computed: spans of the lanes "backward" and "forward", by time.
        sends: in the order in which they were launched.
    """

    computed: tuple[LaneSpan, ...]
    sends: tuple[SentPartition, ...]

    @property
    def spans(self) -> list[LaneSpan]:
        """The spans of all three lanes."""
        return [*self.computed, *(LaneSpan(TRANSFERS, s.partition.layer, s.start, s.end) for s in self.sends)]

    @property
    def order(self) -> list[GradientPartition]:
        """The partitions as they were launched."""
        return [send.partition for send in self.sends]

    @property
    def makespan(self) -> float:
        """Seconds from the beginning of backward to the end of the next forward pass."""
        return max(span.end for span in self.spans)

    @property
    def waiting(self) -> float:
        """Seconds in which nothing is computed: communication that no computation hides."""
        return length(without([(0.0, self.makespan)], [(span.start, span.end) for span in self.computed]))


def simulate_step(
    times: LayerTimes, policy: SchedulingPolicy, seconds: TransferSeconds, itemsize: int = 4
) -> ScheduledStep:
    """Play one step.

    Args:
        times: of the layers.
        policy: of the sends.
        seconds: what the transfer of so many bytes takes.
        itemsize: bytes of a gradient's element, which no partition cuts.
    """
    spans, ready, begun = [], [0.0] * len(times.nbytes), 0.0
    for layer in reversed(range(len(times.nbytes))):
        ready[layer] = begun + times.backward[layer]
        spans.append(LaneSpan(BACKWARD, layer, begun, ready[layer]))
        begun = ready[layer]
    sends = play_sends(partitions_of(times.nbytes, policy.partition_bytes, itemsize), ready, policy, seconds)
    arrived = [0.0] * len(times.nbytes)
    for send in sends:
        arrived[send.partition.layer] = max(arrived[send.partition.layer], send.end)
    if policy.barrier:
        begun = max(begun, *arrived)
    for layer, own in enumerate(times.forward):
        start = max(begun, arrived[layer])
        begun = start + own
        spans.append(LaneSpan(FORWARD, layer, start, begun))
    return ScheduledStep(tuple(spans), tuple(sends))


def play_sends(
    partitions: Sequence[Sequence[GradientPartition]],
    ready: Sequence[float],
    policy: SchedulingPolicy,
    seconds: TransferSeconds,
) -> list[SentPartition]:
    """The sends alone, in the order in which they are launched.

    Args:
        partitions: of each layer.
        ready: when each layer's gradient is there.
        policy: says which one is next, and whether the credit lets it leave.
        seconds: what the transfer of so many bytes takes.
    """
    # As they become ready: later layers first, where two are ready at the same time.
    unsent = [p for layer in sorted(range(len(ready)), key=lambda i: (ready[i], -i)) for p in partitions[layer]]
    sends: list[SentPartition] = []
    now = free = 0.0  # the clock; when the link has ended what it was given
    while unsent:
        now = max(now, ready[unsent[0].layer])
        in_flight = list(takewhile(lambda send: send.end > now, reversed(sends)))  # noqa: B023  the newest first
        if not policy.may_launch(sum(send.partition.nbytes for send in in_flight)):
            now = in_flight[-1].end  # choose then: something more urgent may be ready
            continue
        chosen = policy.choose([p for p in unsent if ready[p.layer] <= now])
        unsent.remove(chosen)
        start = max(now, free)
        free = start + seconds(chosen.nbytes)
        sends.append(SentPartition(chosen, ready[chosen.layer], now, start, free))
    return sends


def busier_seconds(times: LayerTimes, seconds: TransferSeconds) -> float:
    """The work of the busier one, rank or link: max(C, T), all computation or all transfers, each layer in one.

    No order takes less, and FIFO with a barrier at most C + T, so no order gains more than a factor of 2 over it.
    `lower_bound` is nearer to what an order can reach.
    """
    return max(times.compute, sum(seconds(nbytes) for nbytes in times.nbytes if nbytes))


def lower_bound(times: LayerTimes, seconds: TransferSeconds) -> float:
    """What no order can go below, in partitions of any size.

    Either the rank computes all the time, C seconds. Or the link holds it up, by the transfers of layers 0 to k, for
    some k that sends something:

        head        the backward passes of the last layer down to k: before they have ended none of these can leave
        transfers   of layers 0 to k, one after the other
        tail        the forward passes of k to the last layer: what arrives last belongs to one of the layers 0 to k,
                    and that layer and those behind it are still to come

    The longest of these sums counts. With k = 0 it is B + t_0 + F, all backward passes, the transfer of the first layer
    and all forward passes; with k the last layer b_k + T + f_k, so that T alone is never reached. With partitions ever
    smaller, a credit of one of them and no latency, priority comes as near to it as one likes: it is the bound of
    Carlier (1982) for one machine with heads and tails, in which the layer with the longest tail is the most urgent.

    Args:
        times: of the layers.
        seconds: what the transfer of so many bytes takes; in pieces it must not take less.
    """
    longest, transfers = times.compute, 0.0
    for k, nbytes in enumerate(times.nbytes):
        if nbytes:
            transfers += seconds(nbytes)
            longest = max(longest, sum(times.backward[k:]) + transfers + sum(times.forward[k:]))
    return longest
