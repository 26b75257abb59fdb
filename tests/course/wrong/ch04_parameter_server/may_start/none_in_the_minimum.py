# expect: DTL-RAISED
# says: nobody waits for a worker that has left


def may_start(clocks, worker, bound):
    return clocks[worker] - min(clocks) <= bound
