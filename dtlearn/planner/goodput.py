"""What is left of a run after failures and checkpoints.

Young, CACM 1974, and Daly, FGCS 2006: with a checkpoint that costs d seconds and a mean time M between failures, the
interval sqrt(2dM) loses least; d/t of the time goes into checkpoints and t/2 + restart of each M into failures. The
mean time between failures falls with the number of chips: Llama 3 had 419 unexpected stops in 54 days on 16,384 GPUs
(2407.21783, section 3.3.4), one in 50,700 hours of a GPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .checking import check_positive, check_whole

CHIP_HOURS = 54 * 24 * 16384 / 419  # between failures of one GPU


class Goodput(NamedTuple):
    """The part of the time that trains.

    Attributes:
        share: of 1.
        interval: seconds between checkpoints.
        mean_time: seconds between failures of the cluster.
        in_checkpoints, in_failures: of 1, what they take.
    """

    share: float
    interval: float
    mean_time: float
    in_checkpoints: float
    in_failures: float


def goodput(
    chips: int, checkpoint_seconds: float = 60.0, restart_seconds: float = 600.0, chip_hours: float = CHIP_HOURS
) -> Goodput:
    """Goodput with the best interval.

    Args:
        chips: of the run; each can stop all of it.
        checkpoint_seconds: training stands still so long; an asynchronous one only until the copy is made.
        restart_seconds: from a failure until steps run again.
        chip_hours: mean time between failures of one chip.

    Raises:
        ValueError: a number below 1 chip, or times that are not positive.
    """
    check_whole("goodput", chips=chips)
    check_positive("goodput", checkpoint_seconds=checkpoint_seconds, chip_hours=chip_hours)
    check_positive("goodput", zero=True, restart_seconds=restart_seconds)
    mean = chip_hours * 3600 / chips
    interval = math.sqrt(2 * checkpoint_seconds * mean)
    in_checkpoints = checkpoint_seconds / (interval + checkpoint_seconds)
    in_failures = min(1.0, (interval / 2 + restart_seconds) / mean)
    return Goodput(max(0.0, (1 - in_checkpoints) * (1 - in_failures)), interval, mean, in_checkpoints, in_failures)
