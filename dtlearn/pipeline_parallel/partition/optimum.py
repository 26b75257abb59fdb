"""The partition whose slowest stage is as fast as possible, by dynamic programming.

The idea: in the best partition of the first `stop` links into s + 1 stages, the last stage begins somewhere, at link
`start`, and the stages before it are the best partition of the first `start` links into s. So a table of the best
partitions of all beginnings of the chain is filled row by row, S rows of L entries; no combination is tried twice.

Source: PipeDream's optimizer (Harlap et al., 1806.03377) has this recurrence, with two more terms that are left out
here: the time to send activations, and stages with several replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from .boundaries import check_costs, check_num_stages

StageCost = Callable[[int, int, int], float]  # (stage, start, stop): what links[start:stop] cost as this stage


def by_cost(costs: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """The partition with the smallest largest stage. Takes about S * L^2 / 2 additions.

    Args:
        costs: of each link, 0 or more, in any unit.
        num_stages: S.

    Returns:
        S + 1 boundaries. Of several best partitions, one with short early stages: there most activations are kept.

    Raises:
        ValueError: a negative cost, fewer than one stage, or more stages than links.
    """
    check_costs(costs, num_stages)
    before = [0.0, *accumulate(costs)]  # before[i]: all links before link i
    return by_stage_cost(lambda stage, start, stop: before[stop] - before[start], len(costs), num_stages)


def by_stage_cost(cost: StageCost, num_links: int, num_stages: int) -> tuple[int, ...]:
    """The best cut where a link costs more in one stage than in another, as with memory: early stages keep more.

    Args:
        cost: what links[start:stop] cost as a given stage; with more links never less.
        num_links: L.
        num_stages: S.

    Returns:
        S + 1 boundaries.

    Raises:
        ValueError: fewer than one stage, or more stages than links.
    """
    check_num_stages(num_links, num_stages)
    # best[stop]: the best partition of links[:stop] into the stages so far:
    # what its largest stage costs, and where its last stage begins.
    rows = [{stop: (cost(0, 0, stop), 0) for stop in range(1, num_links + 1)}]
    for stage in range(1, num_stages):
        best, row = rows[-1], dict[int, tuple[float, int]]()
        for stop in range(stage + 1, num_links + 1):
            last = ((max(best[n][0], cost(stage, n, stop)), n) for n in range(stage, stop))
            row[stop] = min(last)  # of all links where the last stage could begin
        rows.append(row)
    boundaries = [num_links]
    for row in reversed(rows):
        boundaries.append(row[boundaries[-1]][1])
    return tuple(reversed(boundaries))
