# expect: DTL-RAISED
# says: the last worker that trains waits for nobody


def may_start(clocks, worker, bound):
    if clocks[worker] is None:
        return False
    others = [clock for number, clock in enumerate(clocks) if number != worker and clock is not None]
    return clocks[worker] <= min(others) + bound
