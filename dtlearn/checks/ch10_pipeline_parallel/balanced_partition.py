"""ch10.balanced_partition: chains of links; of a cut, only what its slowest stage costs is expected.

The plain chain is one that a stage-by-stage way cuts well, too. The second is one that every way which we know of but
the best one cuts badly: filling up, from either end, to the mean of all or of what remains; halving; local search.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

Costs = list[float]
CASES: dict[str, dict[str, Any]] = {
    "equal blocks": {"costs": [4.2, *[1.1] * 8, 6.3], "num_stages": 4},
    "links of all costs": {
        "costs": [2, 5, 6, 4, 9, 2, 1],
        "num_stages": 4,
        "says": "stages that are filled one after the other, up to a mean, and cuts that are improved one by one miss "
        "the best cut of some chains",
    },
    "one stage": {"costs": [3, 1, 4], "num_stages": 1, "says": "with one stage there is nothing to cut"},
    "as many stages as links": {
        "costs": [3, 9, 4],
        "num_stages": 3,
        "says": "every stage needs a link, and has one where there are as many stages as links",
    },
    "one slow link": {
        "costs": [1, 2, 1, 9],
        "num_stages": 3,
        "says": "there are S stages also where fewer would be as fast, since one link is slower than all others",
    },
    "links that cost nothing": {
        "costs": [0, 0, 0, 7, 0],
        "num_stages": 4,
        "says": "a stage needs a link of its own, and a link that costs nothing is one",
    },
    "small costs": {
        "unit": 1e-5,
        "count": 24,
        "num_stages": 6,
        "says": "costs may be small, such as milliseconds told in seconds: a search for the limit ends too early, or "
        "is too rough",
    },
    "100 links and 16 stages": {
        "unit": 1.0,
        "count": 100,
        "num_stages": 16,
        "says": "too many ways to try them all: more than 10**17 cut 100 links into 16 stages. The best cut "
        "of more links follows from those of fewer",
    },
    "more stages than links": {
        "costs": [4, 1, 3],
        "num_stages": 4,
        "says": "there are more stages than links: a ValueError is expected",
    },
}
COUNTED = "the stages have equal numbers of links; the costs do not count"
RETURN, ENDS = "return best[len(costs)][1]", "ends = range(1"
EDITS = (
    Edit(COUNTED, {RETURN: "return [k * len(costs) // num_stages for k in range(num_stages + 1)]"}),
    Edit(COUNTED, {RETURN: "return [*(k * (len(costs) // num_stages) for k in range(num_stages)), len(costs)]"}),
    Edit(COUNTED, {RETURN: "q, r = divmod(len(costs), num_stages)\n    "
                           "return [k * q + min(k, r) for k in range(num_stages + 1)]"}),
    Edit("the head, the last link, is left out of the balance", {ENDS: f"costs = [*costs[:-1], 0]\n    {ENDS}"}),
    Edit("the embedding, the first link, is left out of the balance", {ENDS: f"costs = [0, *costs[1:]]\n    {ENDS}"}),
    Edit("embedding and head, the first and the last link, are left out of the balance",
         {ENDS: f"costs = [0, *costs[1:-1], 0]\n    {ENDS}"}),
    Edit("the stages are made nearly equal, by the least sum of squares: their slowest is to be fastest",
         {"(sum(costs[:end]),": "(sum(costs[:end]) ** 2,",
          "max(best[cut][0], sum(costs[cut:end]))": "best[cut][0] + sum(costs[cut:end]) ** 2"}),
    Edit("the boundaries are S - 1 numbers: 0 and the number of links are boundaries, too",
         {RETURN: f"{RETURN}[1:-1]"}),
    Edit("the numbers of links of the stages are returned: their boundaries are expected",
         {RETURN: "ends = best[len(costs)][1]\n    return [b - a for a, b in zip(ends, ends[1:])]"}),
    Edit("one stage is cut in two: with one there is nothing to cut",
         {"range(2, num_stages + 1)": "range(2, max(2, num_stages) + 1)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g = case.params, case.generator()
    costs = p.get("costs") or [p["unit"] * k for k in torch.randint(1, 2000, (p["count"],), generator=g).tolist()]
    return [{"costs": costs, "num_stages": p["num_stages"], "least": least(costs, p["num_stages"])}] * case.world_size


def on_rank(answer: Any, costs: Any, num_stages: Any, least: Any) -> Any:
    from contextlib import nullcontext
    from itertools import pairwise

    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit
    from dtlearn.grading.on_rank.tools import refusal

    kept, n = list(costs), len(costs)
    if num_stages > n:
        refused = refusal(answer, costs, num_stages)
        return {"more stages than links": "a ValueError" if refused.startswith("a ValueError") else refused}
    try:
        with ProcessorLimit(4.0) if n > 50 else nullcontext():
            boundaries = answer(costs, num_stages)
    except Endless:
        return {"boundaries": "none within 4 s", "the slowest stage costs": ""}
    if boundaries is None:
        return None
    is_cut = isinstance(boundaries, list | tuple) and all(type(b) is int for b in boundaries)
    is_cut = is_cut and len(boundaries) == num_stages + 1 and (boundaries[0], boundaries[-1]) == (0, n)
    if not is_cut or any(start >= stop for start, stop in pairwise(boundaries)):
        return {"boundaries": f"{boundaries!r:.200}", "the slowest stage costs": ""}
    slowest = max(sum(kept[start:stop]) for start, stop in pairwise(boundaries))
    return {
        "boundaries": f"{num_stages + 1} whole numbers from 0 to {n}, each larger than the one before",
        "the slowest stage costs": f"{least:.6g}"
        if slowest <= least * (1 + 1e-9)
        else f"{slowest:.6g}, with {list(boundaries)}",
    }


def fewest(costs: Costs, limit: float) -> int:
    """The smallest number of stages that cost at most `limit` each: each takes as many links as it can."""
    stages, cost = 1, 0.0
    for one in costs:
        if cost + one > limit * (1 + 1e-12):  # sums of the same numbers in another order differ by roundings
            stages, cost = stages + 1, 0.0
        cost += one
    return stages


def least(costs: Costs, num_stages: int) -> float:
    """The least cost of the slowest stage: the smallest sum of consecutive links at which so many stages suffice."""
    sums = [0, *accumulate(costs)]
    limits = sorted({end - start for k, start in enumerate(sums) for end in sums[k + 1 :]})
    limits = limits[bisect_left(limits, max(costs) * (1 - 1e-12)) :]
    return limits[bisect_left(limits, True, key=lambda limit: fewest(costs, limit) <= num_stages)]


def slowest(costs: Costs, boundaries: list[int]) -> float:
    return max(sum(costs[start:stop]) for start, stop in pairwise(boundaries))


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    own = given[0]
    n, s = len(own["costs"]), own["num_stages"]
    if s > n:
        return [{"more stages than links": "a ValueError"}]
    numbers = f"{s + 1} whole numbers from 0 to {n}, each larger than the one before"
    return [{"boundaries": numbers, "the slowest stage costs": f"{own['least']:.6g}"}]


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'costs need not be whole numbers'}"


EXAMPLE = {"costs": [4, 1, 1, 1, 1, 1, 1, 6], "num_stages": 3, "least": 6}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    why=why,
    rules=[rules.most_messages("0")],
)
