"""Intervals of time: what is covered, and what is not."""

from collections.abc import Iterable

Interval = tuple[float, float]  # begin, end


def union(intervals: Iterable[Interval], gap: float = 0.0) -> list[Interval]:
    """The same moments as intervals that do not touch, in order; gaps up to `gap` are closed."""
    covered: list[Interval] = []
    for begin, end in sorted(i for i in intervals if i[1] > i[0]):
        if covered and begin <= covered[-1][1] + gap:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((begin, end))
    return covered


def without(intervals: Iterable[Interval], hidden: Iterable[Interval]) -> list[Interval]:
    """The moments of `intervals` that are in none of `hidden`."""
    left = union(intervals)
    for begin, end in union(hidden):
        parts = [((a, min(b, begin)), (max(a, end), b)) for a, b in left]
        left = [part for pair in parts for part in pair if part[1] > part[0]]
    return sorted(left)


def length(intervals: Iterable[Interval]) -> float:
    """Time in at least one of them."""
    return sum(end - begin for begin, end in union(intervals))
