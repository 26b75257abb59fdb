from math import exp


def interval(step, save, restart, mtbf):
    """All numbers of steps, and exp(...) - 1 as it is written."""
    for time in (step, save, mtbf, restart + step):
        if not time > 0:
            raise ValueError("no time")
    if restart < 0:
        raise ValueError("no restart")
    rows = []
    for n in range(1, int(mtbf / step) + 2):
        seconds = mtbf * exp(restart / mtbf) * (exp((n * step + save) / mtbf) - 1)
        rows.append((n * step / seconds, n))
    goodput, n = max(rows)
    return n, goodput
