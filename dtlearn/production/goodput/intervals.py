"""How often to save: Young's and Daly's intervals, and the goodput that the model expects of any interval.

Letters as in Daly's paper: a save costs delta seconds, a restart R, failures come M seconds apart on average, at random
and independent of each other; tau seconds of training lie between two saves.
"""

from __future__ import annotations

import math

from dtlearn.planner.goodput import goodput


def young_interval(save: float, mtbf: float) -> float:
    """Seconds of training between saves: sqrt(2 delta M) (Young, CACM 17(9), 1974). The planner has the same formula.

    Args:
        save: seconds of a save.
        mtbf: mean seconds between failures of the job.

    Raises:
        ValueError: times that are not positive.
    """
    return goodput(1, checkpoint_seconds=save, restart_seconds=0.0, chip_hours=mtbf / 3600).interval


def daly_interval(save: float, mtbf: float) -> float:
    """Seconds of training between saves, to a higher order (Daly, FGCS 22(3), 2006, 303-312).

    sqrt(2 delta M) [1 + sqrt(delta / 2M) / 3 + (delta / 2M) / 9] - delta for delta < 2M, and M for larger delta. The
    restart is not in it: it costs the same, whatever the interval is.

    Args:
        save, mtbf: as for `young_interval`.

    Raises:
        ValueError: times that are not positive.
    """
    young = young_interval(save, mtbf)
    if save >= 2 * mtbf:
        return mtbf
    x = save / (2 * mtbf)
    return young * (1 + math.sqrt(x) / 3 + x / 9) - save


def expected_goodput(
    interval: float, save: float, restart: float, mtbf: float, *, failures_in_restart: bool = True
) -> float:
    """The part of the time that trains for good, by Daly's complete model; 0 to 1.

    Training for tau and saving for delta takes M e^(R/M) (e^((tau + delta)/M) - 1) seconds on average, if a restart can
    fail too, and (M + R) (e^((tau + delta)/M) - 1) if it cannot.

    Args:
        interval: seconds of training between saves.
        save, restart, mtbf: seconds.
        failures_in_restart: whether a restart can be hit.

    Raises:
        ValueError: times that are not positive.
    """
    if min(interval, save, mtbf) <= 0 or restart < 0:
        raise ValueError(
            f"expected positive times, and a restart of 0 or more; got an interval of {interval:g} s, a save of "
            f"{save:g} s, a restart of {restart:g} s and {mtbf:g} s between failures"
        )
    each = mtbf * math.exp(restart / mtbf) if failures_in_restart else mtbf + restart
    return interval / (each * math.expm1((interval + save) / mtbf))
