"""Merges what several ranks printed: a line that they share is shown once, with the ranks that printed it."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from ..runtime.words import runs

_MANY = 3000  # lines above which a full comparison would take longer than it is worth


def fold_lines(per_rank: Mapping[int, list[str]]) -> list[tuple[list[int], str]]:
    """Merge the lines of several ranks, `{rank: lines}`, into pairs of (ranks, line).

    The order depends on the lines only, not on their timing: lines that all ranks printed (but for ranks that printed
    nothing), in the same order, anchor the result. Between two anchors stand the lines of each rank, lowest rank first;
    ranks that printed the same there are merged.
    """
    ranks = sorted(r for r, lines in per_rank.items() if lines)
    if not ranks:
        return []
    first = per_rank[ranks[0]]
    common = _common(first, [per_rank[r] for r in ranks[1:]])
    if common is None:
        return _side_by_side({r: per_rank[r] for r in ranks})
    merged: list[tuple[list[int], str]] = []
    begins = dict.fromkeys(ranks, 0)
    for ends in [*common, None]:
        stops = {r: ends[i] if ends is not None else len(per_rank[r]) for i, r in enumerate(ranks)}
        merged += _side_by_side({r: per_rank[r][begins[r] : stops[r]] for r in ranks})
        if ends is not None:
            merged.append((ranks, first[ends[0]]))
            begins = {r: stops[r] + 1 for r in ranks}
    return merged


def _common(first: list[str], others: list[list[str]]) -> list[tuple[int, ...]] | None:
    """Positions of the lines that all share: a tuple of one position per rank. None: too long to compare."""
    if all(other == first for other in others):
        return [(i,) * (len(others) + 1) for i in range(len(first))]
    if len(first) + sum(map(len, others)) > _MANY:
        return None
    positions: list[tuple[int, ...]] = [(i,) for i in range(len(first))]
    for other in others:
        match = _longest_common(first, other)
        positions = [(*p, match[p[0]]) for p in positions if p[0] in match]
    return positions


def _longest_common(first: list[str], other: list[str]) -> dict[int, int]:
    """`{position in first: position in other}` of a longest common subsequence, by Hunt and Szymanski.

    difflib would take minutes for a thousand lines of which every second one is the same.
    """
    where: dict[str, list[int]] = {}
    for j in reversed(range(len(other))):
        where.setdefault(other[j], []).append(j)
    ends: list[int] = []  # ends[k]: the earliest line of `other` with which k + 1 common lines can end
    chains: list[tuple[int, int, Any]] = [(-1, -1, None)]  # chains[k + 1]: those lines, last one first
    for i, line in enumerate(first):
        for j in where.get(line, ()):
            k = bisect_left(ends, j)
            if k == len(ends) or j < ends[k]:
                ends[k : k + 1], chains[k + 1 : k + 2] = [j], [(i, j, chains[k])]
    match, chain = {}, chains[-1]
    while chain[2] is not None:
        match[chain[0]] = chain[1]
        chain = chain[2]
    return match


def _side_by_side(parts: Mapping[int, list[str]]) -> list[tuple[list[int], str]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, lines in parts.items():
        if lines:
            groups.setdefault(tuple(lines), []).append(rank)
    return [(ranks, line) for lines, ranks in groups.items() for line in lines]


def label(ranks: list[int]) -> str:
    """The ranks of a line: "[0]", "[0-3]", "[0,2]"; rank -1 stands for a launcher."""
    if ranks == [-1]:
        return "[launcher]"
    return "[" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs(ranks)) + "]"


def settle(text: str) -> str:
    """What a terminal would show of text with carriage returns: a progress bar's last state only."""
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
