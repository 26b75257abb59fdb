"""What the stages of a partition take, for the simulator: so that imbalance can be seen as bubble.

The slowest stage sets the pace. GPipe takes sum(F) + (m - 1) max(F) over the stages for its forward passes, and so on
for B; balanced stages would take (p + m - 1) times the mean. With many micro-batches a step is as many times longer as
the slowest stage is slower than the mean, so more micro-batches do not help against imbalance.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..checking.simulate import StageTimes
from .boundaries import stage_costs


def stage_times(
    forward: Sequence[float], boundaries: Sequence[int], backward: Sequence[float] | None = None
) -> StageTimes:
    """Times of the stages from those of the links.

    Args:
        forward: of each link, in any unit: seconds (`measure_seconds`) or FLOPs (`gpt_flops`).
        boundaries: S + 1 link numbers.
        backward: of each link, I and W together, which get half of it each; None: twice its forward time, as for
            matrix products.

    Raises:
        ValueError: boundaries that are no partition of these links.
    """
    backward = [2 * cost for cost in forward] if backward is None else backward
    half = tuple(cost / 2 for cost in stage_costs(backward, boundaries))
    return StageTimes(tuple(stage_costs(forward, boundaries)), half, half)
