"""Two partitions that are quickly made: equal numbers of links, and a greedy one. `optimum` has the best one."""

from __future__ import annotations

from collections.abc import Sequence

from .boundaries import check_costs, check_num_stages


def by_count(num_links: int, num_stages: int) -> tuple[int, ...]:
    """Stages with equal numbers of links, whatever they cost; of a remainder, early stages get a link each.

    Returns:
        S + 1 boundaries.

    Raises:
        ValueError: fewer than one stage, or more stages than links.
    """
    check_num_stages(num_links, num_stages)
    each, longer = divmod(num_links, num_stages)
    return tuple(stage * each + min(stage, longer) for stage in range(num_stages + 1))


def greedy(costs: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Fill one stage after the other up to the mean cost of a stage, and never look back.

    A link goes to the present stage as long as it fits under the mean. What did not fit anywhere ends in the last
    stage, which may cost much more than the others.

    Args:
        costs: of each link, 0 or more.
        num_stages: S.

    Returns:
        S + 1 boundaries.

    Raises:
        ValueError: a negative cost, fewer than one stage, or more stages than links.
    """
    check_costs(costs, num_stages)
    mean = sum(costs) / num_stages
    boundaries = [0]
    for stage in range(num_stages - 1):
        stop, cost = boundaries[-1] + 1, costs[boundaries[-1]]  # a stage has one link at least
        last = len(costs) - (num_stages - 1 - stage)  # and leaves one for each stage after it
        while stop < last and cost + costs[stop] <= mean:
            cost += costs[stop]
            stop += 1
        boundaries.append(stop)
    return (*boundaries, len(costs))
