"""Timing several ways to do the same, in turns within one run: the one way in which this package compares times.

A machine gets slower and faster while one measures, and other programs come and go. Two times are compared only if they
were taken one after the other: each round takes every way once, and a ratio is that of one round. The order turns from
round to round, so that nobody always comes first.

`time_in_turns` runs on the ranks, one call on each; `turns` is its order, for who takes other times than that of a
whole way; the rest reads what was returned, in any process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch.distributed as dist

from dtlearn.runtime.device import finish

Key = TypeVar("Key")
Times = dict[str, tuple[float, ...]]  # seconds[way]: of each round


def time_in_turns(ways: Mapping[str, Callable[[], object]], rounds: int, warm: int = 1) -> Times:
    """On each rank: seconds of every way, in every round, on the device too, from when all ranks were there.

    **Communication**: a barrier before each time that is taken, and what the ways do.
    **Memory**: none but that of the ways.

    Args:
        ways: what to do, by name; the same names in the same order on every rank.
        rounds: how often each is timed.
        warm: rounds before them that do not count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number, name in turns(ways, warm + rounds):
        dist.barrier()
        begun = time.perf_counter()
        ways[name]()
        finish()
        taken = time.perf_counter() - begun
        if number >= warm:
            seconds[name].append(taken)
    return {name: tuple(of_rounds) for name, of_rounds in seconds.items()}


def turns(names: Iterable[str], rounds: int) -> Iterator[tuple[int, str]]:
    """The number of the round, and whose turn it is."""
    order = list(names)
    for number in range(rounds):
        yield from ((number, name) for name in (order if number % 2 else reversed(order)))


def slowest(per_rank: Sequence[Mapping[Key, Sequence[float]]]) -> dict[Key, tuple[float, ...]]:
    """What all ranks do together is done when the last one is: of each round, the longest time of any rank."""
    return {key: tuple(map(max, zip(*(times[key] for times in per_rank), strict=True))) for key in per_rank[0]}


def ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """How many times as long as the others: the median over the rounds, each of which has both."""
    return statistics.median(own / other for own, other in zip(seconds, others, strict=True))


def difference(seconds: Sequence[float], others: Sequence[float]) -> float:
    """How many seconds longer than the others: the median over the rounds."""
    return statistics.median(own - other for own, other in zip(seconds, others, strict=True))
