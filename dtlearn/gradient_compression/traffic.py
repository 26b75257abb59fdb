"""What each method sends in a step, by formula: the collectives of one rank, their bytes and their messages.

n gradients of 4 bytes, N ranks. Two counts, and both matter:

- the *payload* is what a rank hands to its collectives, as the record counts it;
- *sent* is what then leaves its port. A ring all-reduce of b bytes sends 2 (N-1)/N b, less than 2 b whatever N is. What
  cannot be summed on the way (indices, signs, levels) is all-gathered, and sends (N-1) b: it grows with N.

So k pairs of a value and an index, 8 k bytes, send less than the n gradients only if 8 k (N-1) < 8 n (N-1)/N, which is
k/n < 1/N. Algorithms and formulas are those of the emulated link (`runtime/link/cost.py`: Thakur, Rabenseifner and
Gropp, 2005; Patarasuk and Yuan, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NamedTuple

from dtlearn.runtime.link.cost import Connection, LinkedGroup, seconds

FLOAT = 4  # bytes of a gradient


class StepCall(NamedTuple):
    """A collective that every rank makes in a step.

    Attributes:
        op: its name in `torch.distributed`.
        nbytes: what a rank hands in, as the record counts it.
        times: how often in a step; 1/H for what happens once in H steps.
    """

    op: str
    nbytes: float
    times: float = 1.0


def all_reduced(numel: int, itemsize: int = FLOAT) -> list[StepCall]:
    """Gradients that can be summed as they are sent: DDP's own, or cast to `itemsize` bytes (fp16 and bf16: 2)."""
    return [StepCall("all_reduce", numel * itemsize)]


def gathered(*payload: float) -> list[StepCall]:
    """A payload that cannot be summed, all-gathered: a call for each of its tensors, of these bytes."""
    return [StepCall("all_gather", nbytes) for nbytes in payload]


def powersgd(shapes: Iterable[Sequence[int]], rank: int, least_rate: float = 2.0) -> list[StepCall]:
    """PowerSGD: r (a + b) elements of an a x b matrix in two all-reduces, and all else as it is with the first of them.

    A gradient of several dimensions is a matrix of its first and all others. It stays as it is unless r (a + b) is less
    than a b, by more than `least_rate` (the rule of torch's hook): a vector always does.

    Source: Vogels, Karimireddy and Jaggi, "PowerSGD", 2019, section 3, algorithm 1.

    Args:
        shapes: of all gradients.
        rank: r; a matrix has at most min(a, b).
        least_rate: torch's `min_compression_rate`.
    """
    plain = left = right = 0
    for shape in shapes:
        a, b = (shape[0], prod(shape[1:])) if shape else (1, 1)
        r = min(rank, a, b)
        if r * (a + b) * least_rate < a * b:
            left, right = left + r * a, right + r * b
        else:
            plain += a * b
    return [StepCall("all_reduce", FLOAT * numel) for numel in (left + plain, right) if numel]


def compressed_all_reduce(numel: int, num_ranks: int, nbytes: Callable[[int], int]) -> list[StepCall]:
    """1-bit Adam after its warm-up: each rank averages a shard, and what goes there and comes back is compressed.

    Source: `compressed_all_reduce.py`.

    Args:
        numel: n.
        num_ranks: N.
        nbytes: of the payload of so many elements: `Codec.nbytes`.
    """
    shard = nbytes(-(-numel // (8 * num_ranks)) * 8)  # whole bytes of bits
    return [StepCall("all_to_all", num_ranks * shard), StepCall("all_gather", shard)]


def every(steps: int, calls: Iterable[StepCall]) -> list[StepCall]:
    """What is done once in so many steps: averaging of parameters (local SGD), or DiLoCo's outer step.

    Raises:
        ValueError: fewer than one step.
    """
    if steps < 1:
        raise ValueError(f"expected a number of steps from 1, got {steps}: 1 averages after each step")
    return [call._replace(times=call.times / steps) for call in calls]


def payload_bytes(calls: Iterable[StepCall]) -> float:
    """What a rank hands in, in a step; the record's bytes are this times the steps."""
    return sum(call.nbytes * call.times for call in calls)


def sent_bytes(calls: Iterable[StepCall], num_ranks: int) -> float:
    """What leaves a rank's port in a step: the seconds of the calls on a link of 1 byte/s without latency."""
    return sum(call.times * _cost(call, num_ranks, latency=0.0) for call in calls)


def messages(calls: Iterable[StepCall], num_ranks: int) -> float:
    """How many messages follow each other in a step, each of which takes a latency."""
    return sum(call.times * _cost(call._replace(nbytes=0), num_ranks, latency=1.0) for call in calls)


def _cost(call: StepCall, num_ranks: int, latency: float) -> float:
    if num_ranks < 1:
        raise ValueError(f"expected a number of ranks from 1, got {num_ranks}")
    flat = LinkedGroup(Connection(num_ranks, latency, 1.0), Connection(1, latency, 1.0))
    return seconds(call.op, call.nbytes, flat)
