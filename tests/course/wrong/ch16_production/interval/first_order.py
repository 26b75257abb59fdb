# expect: DTL-VALUE
# says: should be 0.990033; it is 0.99


def interval(step, save, restart, mtbf):
    """Young's sum of what is lost, and the n with the smallest."""
    if not (step > 0 and save > 0 and mtbf > 0 and restart >= 0):
        raise ValueError("times")
    lost = {n: save / (n * step) + n * step / (2 * mtbf) + restart / mtbf for n in range(1, int(mtbf / step) + 2)}
    best = min(lost, key=lost.get)
    return best, 1 - lost[best]
