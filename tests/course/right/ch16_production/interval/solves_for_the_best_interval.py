import math


def interval(step, save, restart, mtbf):
    """By the zero of the derivative, 1 - x = exp(-x - d), with x and d in units of mtbf; then its two neighbours."""
    if step <= 0 or save <= 0 or mtbf <= 0 or restart < 0:
        raise ValueError(f"{step}, {save}, {restart}, {mtbf} are no times")
    x = min(0.5, math.sqrt(2 * save / mtbf))
    for _ in range(60):
        x -= (1 - x - math.exp(-x - save / mtbf)) / (math.exp(-x - save / mtbf) - 1)

    def part(n):
        return n * step / mtbf / math.expm1((n * step + save) / mtbf) * math.exp(-restart / mtbf)

    n = math.floor(x * mtbf / step)
    best = max(n, n + 1, key=part)
    return best, part(best)
