# expect: DTL-RAISED
# says: every time is positive

import math


def interval(step, save, restart, mtbf):
    if min(step, save, restart, mtbf) <= 0:
        raise ValueError("every time is positive")
    good = [n * step / mtbf / math.expm1((n * step + save) / mtbf) for n in range(1, 2 + int(mtbf / step))]
    return good.index(max(good)) + 1, max(good) / math.exp(restart / mtbf)
