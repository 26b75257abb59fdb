# expect: DTL-MISTAKE
# says: a clock of 0 is taken for a worker that has left


def may_start(clocks, worker, bound):
    if not clocks[worker]:
        return clocks[worker] == 0
    return clocks[worker] - min(c for c in clocks if c) <= bound
