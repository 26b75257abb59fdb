"""ch10.balanced_partition: several chains of links; of a cut, only what its slowest stage costs is asked.

What wrong ways of cutting lead to is computed beside the right one, so that a wrong answer can be told which it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

Costs = list[float]
_LARGE = 40  # links; with more, the job is not written out
# Chains on which every way of cutting fails that we know of but the best one: filling up, from either end, to the mean
# of all or of what remains; the least sum of squares; the least difference; the largest smallest stage; local search.
_HARD: tuple[tuple[Costs, int], ...] = (
    ([1, 8, 2, 6, 3, 3], 4),
    ([5, 9, 2, 8, 8, 9], 3),
    ([1, 5, 1, 1, 2, 7, 2, 1], 3),
)


def inputs(case: Case) -> Given:
    g = case.generator()

    def costs(count: int, low: int, high: int, unit: float = 1) -> Costs:
        return [unit * k for k in torch.randint(low, high, (count,), generator=g).tolist()]

    blocks = costs(1, 3, 6)[0]
    unit = costs(1, 1, 6)[0]
    jobs: list[tuple[Costs, int]] = [
        ([4, 1, 1, 1, 1, 1, 1, 6], 3),
        *(([unit * cost for cost in chain], s) for chain, s in _HARD),
        ([2 * blocks, *[blocks] * 12, 5 * blocks], 4),  # a GPT: equal blocks, a head of several
        (costs(14, 1, 20), 4),
        (costs(17, 0, 30, 0.125), 5),
        ([*costs(11, 1, 6), 60], 4),  # one stage is the slowest however the others are cut
        ([0, 0, 0, 7, 0], 4),
        ([3, 3, 3, 3, 3, 3], 6),
        (costs(5, 1, 9), 1),
        ([5], 1),
        (costs(9, 1, 40), 2),
        (costs(90, 1, 400, 0.25), 12),
        *((costs(100, low, 2000), 16) for low in (1, 1, 1800)),  # a limit that is nearly right misses some of them
        ([k / 1e5 for k in costs(24, 1, 400)], 6),  # seconds: a search that ends 0.001 too early is seen
        ([0, 0, 0], 2),
        (costs(4, 1, 9), 5),
        ([1], 2),
        (costs(3, 1, 9), 7),
    ]
    return [{"jobs": [list(job) for job in jobs]}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    made: Any = []
    for costs, num_stages in jobs:
        try:
            boundaries = answer(own := list(costs), num_stages)
        except NotImplementedError:
            raise
        except Exception as error:
            if num_stages <= len(costs) and not isinstance(error, ValueError):
                raise
            made.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
        else:
            boundaries = list(boundaries) if isinstance(boundaries, tuple) else boundaries
            made.append(boundaries if own == costs else {"costs": len(own)})
    return made


def slowest(costs: Costs, boundaries: list[int]) -> float:
    return max(sum(costs[start:stop]) for start, stop in pairwise(boundaries))


def fewest(costs: Costs, limit: float) -> list[int]:
    """Boundaries of the fewest stages that cost no more than `limit`, each filled as far as it goes."""
    cuts, cost = [0], 0.0
    limit *= 1 + 1e-12  # sums of the same numbers in another order differ by roundings
    for place, one in enumerate(costs):
        if cost + one > limit and place > cuts[-1]:
            cuts.append(place)
            cost = 0
        cost += one
    return [*cuts, len(costs)]


def least(costs: Costs, num_stages: int) -> float:
    """What the slowest stage costs at least: the smallest sum of consecutive links with which so many stages do."""
    sums = [0, *accumulate(costs)]
    limits = sorted({end - start for k, start in enumerate(sums) for end in sums[k + 1 :]})
    limits = limits[bisect_left(limits, max(costs)) :]
    return limits[bisect_left(limits, True, key=lambda limit: len(fewest(costs, limit)) - 1 <= num_stages)]


def _floor(costs: Costs, s: int) -> list[int]:
    return [*(k * (len(costs) // s) for k in range(s)), len(costs)]


def _filled(costs: Costs, s: int, over: bool, remaining: bool = False) -> list[int]:
    """A stage is closed at the mean of all stages, or of those that remain: before it is exceeded, or when reached."""
    cuts, cost, n = [0], 0.0, len(costs)
    mean = sum(costs) / s
    for place, one in enumerate(costs):
        stages_left = s - len(cuts)
        full = cost >= mean if over else cost + one > mean
        if stages_left and place > cuts[-1] and (full or n - place == stages_left):
            cuts.append(place)
            cost = 0
            mean = sum(costs[place:]) / stages_left if remaining else mean
        cost += one
    return [*cuts, n]


def _near_the_mean(costs: Costs, s: int) -> list[int]:
    """Cuts where the sum of all links before comes nearest to k / S of the whole."""
    sums = [0, *accumulate(costs)]
    return [min(range(len(sums)), key=lambda i: abs(sums[i] - sums[-1] * k / s)) for k in range(s + 1)]


def _quantiles(costs: Costs, s: int) -> list[int]:
    sums = [0, *accumulate(costs)]
    return [bisect_right(sums, sums[-1] * k / s) - 1 for k in range(s)] + [len(costs)]


_COUNTED = "the stages have equal numbers of links; the costs do not count"
_FILLED = "the stages are filled one after the other, up to the mean: what is left over makes a stage too slow"
_WAYS: tuple[tuple[str, str, Callable[[Costs, int], list[int]]], ...] = (
    ("EQUAL-COUNTS", _COUNTED, _floor),
    ("FILLED-UP", _FILLED, lambda costs, s: _filled(costs, s, over=True)),
    ("FILLED-UP", _FILLED, lambda costs, s: _filled(costs, s, over=False)),
    ("FILLED-UP", _FILLED, lambda costs, s: _filled(costs, s, over=True, remaining=True)),
    ("FILLED-UP", _FILLED, lambda costs, s: _filled(costs, s, over=False, remaining=True)),
    ("FILLED-UP", "each cut is made where the links before it cost nearest to s / S of all", _near_the_mean),
    ("FILLED-UP", "each cut is made where the links before it cost no more than s / S of all", _quantiles),
)
_ENDS = (
    (True, False, "the head, the last link, is"),
    (False, True, "the embedding, the first link, is"),
    (True, True, "embedding and head, the first and the last link, are"),
)


def _told(costs: Costs, num_stages: int) -> str:
    shown = f"{len(costs)} links" if len(costs) > _LARGE else f"costs {costs}"
    return f"{shown}, {num_stages} stage{'s' * (num_stages != 1)}"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (i, made) in enumerate(zip(given, got, strict=True)):
        wrong = []
        for (costs, s), boundaries in zip(i["jobs"], made, strict=True):
            told = _told(costs, s)
            if found := _malformed(costs, s, boundaries):
                return Finding(found[0], f"{told}: {found[1]}", rank)
            if s <= len(costs) and slowest(costs, boundaries) > least(costs, s) + 1e-9:
                wrong.append((costs, s, boundaries))
        if wrong:
            return _too_slow(i["jobs"], made, wrong, rank)
    return None


def _malformed(costs: Costs, s: int, boundaries: Any) -> tuple[str, str] | None:
    if s > len(costs):
        if boundaries == "ValueError":
            return None
        had = f"{boundaries} was raised" if isinstance(boundaries, str) else f"{boundaries} was returned"
        return "DTL-VALUE-UNCHECKED", f"there are more stages than links: a ValueError is asked, and {had}"
    if boundaries == "ValueError":
        return "DTL-VALUE-REFUSED", "a ValueError was raised, although every stage can have a link"
    if isinstance(boundaries, dict) and "costs" in boundaries:
        return "DTL-MUTATED", "costs has changed, and the caller still needs it: work on a copy, list(costs)"
    if boundaries is None:
        return "DTL-VALUE-NONE", "None is returned: is a `return` missing?"
    if not isinstance(boundaries, list) or not all(type(b) is int for b in boundaries):
        return "DTL-VALUE-TYPE", f"the boundaries should be a list of whole numbers; it is {str(boundaries)[:120]}"
    text = f"the boundaries are {boundaries}: "
    if len(boundaries) != s + 1:
        text += f"{len(boundaries)} numbers where S + 1 = {s + 1} are asked"
        if len(boundaries) == s - 1 and 0 not in boundaries:
            text += ". 0 and the number of links are boundaries too"
        elif 1 < len(boundaries) <= s and boundaries[0] == 0 and boundaries[-1] == len(costs):
            text += f", so there are {len(boundaries) - 1} stages, not {s}"
        return "DTL-VALUE-BOUNDARIES", text
    if boundaries[0] != 0 or boundaries[-1] != len(costs):
        return "DTL-VALUE-BOUNDARIES", f"{text}the first should be 0, the last {len(costs)}, the number of links"
    for stage, (start, stop) in enumerate(pairwise(boundaries)):
        if start >= stop:
            return "DTL-VALUE-BOUNDARIES", f"{text}stage {stage} has no link, and each needs one"
    return None


def _too_slow(jobs: Any, made: Any, wrong: list[Any], rank: int) -> Finding:
    costs, s, boundaries = next((one for one in wrong if len(one[0]) <= _LARGE), wrong[0])
    cost = slowest(costs, boundaries)
    text = f"{_told(costs, s)}: with the boundaries {boundaries} the slowest stage costs {cost:g}; "
    text += f"{least(costs, s):g} is possible"
    fitting: list[Any] = [(job, b) for job, b in zip(jobs, made, strict=True) if job[1] <= len(job[0])]
    sizes = [[stop - start for start, stop in pairwise(b)] for _, b in fitting]
    if all(max(of_stages) - min(of_stages) <= 1 for of_stages in sizes):
        return Finding("DTL-VALUE-EQUAL-COUNTS", f"{text}: {_COUNTED}", rank)
    for code, why, way in _WAYS:
        if all(way(*job) == b for job, b in fitting if len(set(way(*job))) == job[1] + 1):
            return Finding(f"DTL-VALUE-{code}", f"{text}: {why}", rank)
    for head, embedding, which in _ENDS:
        if all(_is_best_without(c, n, b, head, embedding) for (c, n), b in fitting if len(c) > 1):
            return Finding("DTL-VALUE-ENDS-IGNORED", f"{text}: {which} left out of the balance", rank)
    if not any(float(sum(one[0])).is_integer() for one in wrong):
        text += ": only chains whose costs are not whole numbers are cut badly"
    few = f" ({len(wrong)} of {len(fitting)} chains are cut badly)"
    return Finding("DTL-VALUE-SLOWEST-STAGE", text + few, rank)


def _is_best_without(costs: Costs, s: int, boundaries: list[int], head: bool, embedding: bool) -> bool:
    """Whether the cut is the best one of a chain whose ends cost nothing."""
    free = [0 if embedding else costs[0], *costs[1:-1], 0 if head else costs[-1]]
    return slowest(free, boundaries) <= least(free, s) + 1e-9


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}there may be one link, one stage, links that cost nothing, and costs that are not whole numbers"


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")], seconds=6.0)
