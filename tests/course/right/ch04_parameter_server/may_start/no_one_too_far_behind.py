def may_start(clocks, worker, bound):
    own = clocks[worker]
    if own is None:
        return False
    return not any(clock is not None and own - clock > bound for clock in clocks)
