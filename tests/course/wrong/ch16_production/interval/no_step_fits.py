# expect: DTL-RAISED
# says: it was called with step =

from math import exp, expm1


def interval(step, save, restart, mtbf):
    """With the numbers of steps that fit into the time between two failures."""
    if step <= 0 or save <= 0 or mtbf <= 0 or restart < 0:
        raise ValueError("times")
    return max(
        range(1, int(mtbf / step) + 1),
        key=lambda n: n * step / expm1((n * step + save) / mtbf),
    ), max(
        n * step / (mtbf * exp(restart / mtbf) * expm1((n * step + save) / mtbf))
        for n in range(1, int(mtbf / step) + 1)
    )
