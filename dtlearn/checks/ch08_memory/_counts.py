"""Counts of bytes, by name, that an answer works out: which mistake leads to the wrong ones.

An exercise has one function that counts, with any set of mistakes in it; those that lead to the answer's numbers on
every rank are told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from dtlearn.grading import Finding

Counts = dict[str, int]
# The counts of one rank's inputs, with these mistakes.
Count = Callable[[dict[str, Any], frozenset[str]], Counts]
_UNITS = {"kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
Says = Mapping[str, tuple[str, str]]  # of each mistake: its code, and what is said of it


def find_mistakes(count: Count, says: Says, given: list[dict[str, Any]], got: list[Counts]) -> Finding | None:
    """Return what is wrong with counts that have the right keys; None if nothing is.

    Args:
        count: the exercise's function; without mistakes it is right.
        says: all mistakes; of two that explain the same, the first is told.
        given: the inputs of each rank.
        got: what each rank returned.
    """
    right = [count(i, frozenset()) for i in given]
    wrong = [key for key in right[0] if any(g[key] != r[key] for g, r in zip(got, right, strict=True))]
    if not wrong:
        return None
    rank = next(rank for rank, g in enumerate(got) if any(g[key] != right[rank][key] for key in wrong))
    counts = functools.cache(lambda mistakes: [count(i, mistakes) for i in given])
    told: list[tuple[str, str]] = []
    rest = wrong
    while rest:
        explained: dict[frozenset[str], list[str]] = {}
        for size in range(3):  # the fewest mistakes first: pairs are many, and only tried where no single one explains
            sets = map(frozenset, combinations(says, size))
            explained = {m: [key for key in rest if _fits(key, counts(m), got)] for m in sets}
            if any(rest[0] in keys for keys in explained.values()):
                break
        # Those that explain most; Python's max takes the first of equals.
        fitting = [m for m, keys in explained.items() if rest[0] in keys]
        best = max(fitting, key=lambda m: len(explained[m]), default=None)
        keys = rest[:1] if best is None else explained[best]
        if best is None:
            told.append(_unexplained(rest[0], right, got, rank))
        else:
            codes = [says[name][0] for name in says if name in best]
            texts = "; and ".join(says[name][1] for name in says if name in best)
            told.append((codes[0], f"{_and(keys)}: {texts}"))
        rest = [key for key in rest if key not in keys]
    told.sort(key=lambda one: one[0] == "DTL-VALUE")  # a mistake that has a name comes first
    return Finding(told[0][0], ". Also, ".join(text for _, text in told), rank)


def _fits(key: str, counts: list[Counts], got: list[Counts]) -> bool:
    return all(made[key] == g[key] for made, g in zip(counts, got, strict=True))


def _unexplained(key: str, right: list[Counts], got: list[Counts], rank: int) -> tuple[str, str]:
    ratios = {g[key] / r[key] for g, r in zip(got, right, strict=True) if r[key]}
    if len(ratios) == 1 and all(bool(g[key]) == bool(r[key]) for g, r in zip(got, right, strict=True)):
        ratio = ratios.pop()
        for unit, size in _UNITS.items():
            if ratio == 1 / size:
                return (
                    "DTL-VALUE-NOT-BYTES",
                    f"{key}: this is in {unit}, {size:,} bytes; asked for is a number of bytes",
                )
        return "DTL-VALUE-FACTOR", f"{key}: {ratio:g} times what it should be on every rank"
    while got[rank][key] == right[rank][key]:
        rank += 1
    return "DTL-VALUE", f"{key} should be {right[rank][key]:,} bytes on rank {rank}; it is {got[rank][key]:,}"


def _and(keys: list[str]) -> str:
    keys = [*keys[:3], f"{len(keys) - 3} more"] if len(keys) > 4 else keys
    return " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
