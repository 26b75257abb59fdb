# expect: DTL-RAISED
# says: with bound math.inf no worker waits


def may_start(clocks, worker, bound):
    if clocks[worker] is None:
        return False
    slowest = min(clock for clock in clocks if clock is not None)
    return clocks[worker] in range(slowest, slowest + bound + 1)
