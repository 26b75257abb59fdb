# expect: DTL-MISTAKE
# says: the list `clocks` is changed


def may_start(clocks, worker, bound):
    own = clocks[worker]
    if own is None:
        return False
    for place in reversed(range(len(clocks))):
        if clocks[place] is None:
            del clocks[place]
    return own - min(clocks) <= bound
