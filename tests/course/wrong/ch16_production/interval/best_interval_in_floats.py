# expect: DTL-VALUE
# says: the result[0] should be 100; it is 99.66

import math


def interval(step, save, restart, mtbf):
    """The best interval itself, which is no whole number of steps."""
    if min(step, save, mtbf) <= 0 or restart < 0:
        raise ValueError("times")
    low, high = 0.0, mtbf
    for _ in range(200):
        tau = (low + high) / 2
        if 1 - tau / mtbf > math.exp(-(tau + save) / mtbf):
            low = tau
        else:
            high = tau
    return tau / step, tau / (mtbf * math.exp(restart / mtbf) * math.expm1((tau + save) / mtbf))
