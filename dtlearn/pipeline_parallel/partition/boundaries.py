"""How a partition is written, and what it costs.

A model is a chain of *links*, 0 to L-1, and a stage is a run of consecutive links. S stages are written as S + 1
*boundaries*: stage s is links[boundaries[s] : boundaries[s + 1]]. The links of a GPT are embedding, blocks and head:

    links        embedding  block 0  block 1  block 2  block 3  head
    boundaries  0                   2                 4              6     (0, 2, 4, 6): 3 stages of 2 links
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def stage_costs(costs: Sequence[float], boundaries: Sequence[int]) -> list[float]:
    """The cost of each stage: the sum over its links.

    Args:
        costs: of each link, in any unit.
        boundaries: S + 1 link numbers.

    Raises:
        ValueError: boundaries that are no partition of these links.
    """
    check_boundaries(boundaries, len(costs))
    return [sum(costs[start:stop]) for start, stop in pairwise(boundaries)]


def imbalance(costs: Sequence[float], boundaries: Sequence[int]) -> float:
    """The slowest stage's cost, divided by the mean over all stages: 1 is perfect balance.

    A long pipeline run goes at the pace of its slowest stage, so this is the factor by which it takes longer than one
    with stages of equal cost, once there are so many micro-batches that filling and draining no longer count.

    Raises:
        ValueError: boundaries that are no partition of these links, or links that all cost nothing.
    """
    stages = stage_costs(costs, boundaries)
    if sum(stages) <= 0:
        raise ValueError("all links together cost 0: there is nothing to balance")
    return max(stages) * len(stages) / sum(stages)


def check_boundaries(boundaries: Sequence[int], num_links: int) -> None:
    """Check that every link is in exactly one stage, and that every stage has a link.

    Raises:
        ValueError: they are no partition of so many links, and why.
    """
    shown = tuple(boundaries)
    if len(shown) > 1:
        check_num_stages(num_links, len(shown) - 1)
    if len(shown) < 2 or shown[0] != 0 or shown[-1] != num_links:
        raise ValueError(f"boundaries start with 0 and end with the number of links, {num_links}; got {shown}")
    for stage, (start, stop) in enumerate(pairwise(shown)):
        if start >= stop:
            raise ValueError(f"stage {stage} would be links {start} to {stop} (exclusive): it has no link; got {shown}")


def check_num_stages(num_links: int, num_stages: int) -> None:
    """Check that each of so many stages can have a link.

    Raises:
        ValueError: fewer than one stage, or more stages than links.
    """
    if num_stages < 1:
        raise ValueError(f"num_stages must be 1 or more, got {num_stages}")
    if num_stages > num_links:
        raise ValueError(
            f"{num_stages} stages need {num_stages} links or more, but the model has {num_links}: "
            f"use at most {num_links} stages, or cut the model into smaller links"
        )


def check_costs(costs: Sequence[float], num_stages: int) -> None:
    """Check that links with these costs can be divided among so many stages.

    Raises:
        ValueError: a negative cost, fewer than one stage, or more stages than links.
    """
    check_num_stages(len(costs), num_stages)
    for link, cost in enumerate(costs):
        if not cost >= 0:  # NaN too
            raise ValueError(f"a link costs 0 or more, but link {link} costs {cost}")
