def may_start(clocks, worker, bound):
    training = sorted(clock for clock in clocks if clock is not None)
    return clocks[worker] is not None and clocks[worker] <= training[0] + bound
