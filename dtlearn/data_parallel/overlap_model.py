"""The communication that computation hides: the timeline of buckets by arithmetic, and what it means for N ranks.

Seconds throughout; zero is when backward begins. Transfers go one after the other, in the order of the buckets, each as
soon as its bucket is ready and the one before has ended. What they cost is for a function to say:
`lambda nbytes: link.seconds("all_reduce", nbytes, N)` or `ring_all_reduce_seconds`.

Not in the model: that a transfer slows the computation next to it, which it does where both share the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dtlearn.runtime.record.intervals import length, without


@dataclass(frozen=True)
class Transfer:
    """One bucket on its way.

    Attributes:
        nbytes: of the bucket.
        ready: when its last gradient is there.
        start, end: of its all-reduce.
    """

    nbytes: float
    ready: float
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """One training step of one rank; all ranks are alike.

    Attributes:
        forward, backward, optimizer: seconds of computation. Backward begins at 0.
        transfers: in the order in which they leave.
    """

    forward: float
    backward: float
    optimizer: float
    transfers: tuple[Transfer, ...]

    @property
    def end(self) -> float:
        """When the gradients are averaged and the optimizer may step."""
        return max([self.backward, *(t.end for t in self.transfers)])

    @property
    def exposed(self) -> float:
        """Communication that no computation hides: after the end of backward, when nothing is left to compute."""
        return length(without([(t.start, t.end) for t in self.transfers], [(-self.forward, self.backward)]))

    @property
    def communication(self) -> float:
        """Seconds of all communication, hidden or not."""
        return sum(t.end - t.start for t in self.transfers)

    @property
    def step(self) -> float:
        """The whole step: forward, backward, what is exposed, optimizer."""
        return self.forward + self.end + self.optimizer


def timeline(
    ready: Sequence[float],
    nbytes: Sequence[float],
    seconds: Callable[[float], float],
    *,
    backward: float | None = None,
    forward: float = 0.0,
    optimizer: float = 0.0,
) -> Timeline:
    """Send each bucket as soon as it is ready and the link is free, in the order given.

    A communication that begins after backward, bucket by bucket, has `ready=[backward] * K`.

    Args:
        ready: when each bucket is ready; see `ready_times`.
        nbytes: of each.
        seconds: what the all-reduce of so many bytes takes.
        backward: end of the computation of backward; None: when the last bucket is ready.
        forward, optimizer: seconds before and after.

    Raises:
        ValueError: lengths that differ, a negative time, or a bucket that is ready after the end of backward.
    """
    if len(ready) != len(nbytes):
        raise ValueError(f"each bucket needs a time and a size: got {len(ready)} times and {len(nbytes)} sizes")
    end = max(ready, default=0.0) if backward is None else backward
    if min([*ready, end, forward, optimizer]) < 0:
        raise ValueError("times must not be negative: backward begins at 0")
    if max(ready, default=0.0) > end:
        raise ValueError(f"a bucket is ready at {max(ready):g} s, after the end of backward at {end:g} s")
    transfers: list[Transfer] = []
    free = 0.0
    for when, size in zip(ready, nbytes, strict=True):
        start = max(when, free)
        free = start + seconds(size)
        transfers.append(Transfer(size, when, start, free))
    return Timeline(forward, end, optimizer, tuple(transfers))


def ready_times(nbytes: Sequence[float], backward: float) -> list[float]:
    """When each bucket would be ready if backward took the same time for each byte of gradient.

    So it is, about, for linear layers of one kind: both cost and size go with the number of weights.

    Args:
        nbytes: of the buckets, in the order in which backward fills them.
        backward: seconds of computation.
    """
    total, so_far, times = sum(nbytes), 0.0, []
    for size in nbytes:
        so_far += size
        times.append(min(backward, backward * so_far / total) if total else backward)
    return times


@dataclass(frozen=True)
class Scale:
    """A step on N ranks.

    Attributes:
        ranks: N.
        samples: of all ranks together, in one step.
        compute, exposed: seconds of computation, and of communication that it does not hide.
    """

    ranks: int
    samples: int
    compute: float
    exposed: float

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.compute + self.exposed

    @property
    def throughput(self) -> float:
        """Samples per second of all ranks together."""
        return self.samples / self.step


def efficiency(point: Scale, alone: Scale) -> float:
    """Throughput as a share of N times that of one rank; for weak and strong scaling alike."""
    return point.throughput / (point.ranks * alone.throughput)


def predict(
    alone: Timeline,
    samples: int,
    ranks: Sequence[int],
    seconds: Callable[[float, int], float],
    *,
    strong: bool = False,
) -> list[Scale]:
    """From one rank to N: step = computation + exposed communication.

    Weak scaling keeps the samples of each rank, so the computation stays and the batch grows with N. Strong scaling
    keeps the batch: each rank computes an Nth of it, forward and backward take an Nth, and the optimizer, which works
    on all parameters wherever it runs, takes what it took.

    Args:
        alone: a step of one rank with all its samples; of its transfers, sizes and moments of readiness are used.
        samples: of that step.
        ranks: values of N, from 1.
        seconds: what the all-reduce of so many bytes on N ranks takes; called for N > 1.
        strong: strong scaling; False: weak.

    Raises:
        ValueError: an N below 1, or samples below 1.
    """
    if samples < 1 or min(ranks, default=1) < 1:
        raise ValueError(f"samples and ranks must be 1 or more, got {samples} and {list(ranks)}")
    found = []
    for n in ranks:
        share = 1 / n if strong else 1.0
        each = timeline(
            [t.ready * share for t in alone.transfers] if n > 1 else [],
            [t.nbytes for t in alone.transfers] if n > 1 else [],
            lambda nbytes, n=n: seconds(nbytes, n),  # type: ignore[misc]
            backward=alone.backward * share,
            forward=alone.forward * share,
            optimizer=alone.optimizer,
        )
        compute = each.forward + each.backward + each.optimizer
        found.append(Scale(n, samples if strong else samples * n, compute, each.exposed))
    return found
