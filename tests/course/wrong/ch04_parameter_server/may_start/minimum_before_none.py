# expect: DTL-RAISED
# says: where all have left, there is no slowest


def may_start(clocks, worker, bound):
    slowest = min(c for c in clocks if c is not None)
    return clocks[worker] is not None and clocks[worker] - slowest <= bound
