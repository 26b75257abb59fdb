# expect: DTL-DIFFICULTY
# says: a unit that this rank skips is gathered and waited for all the same


def prefetch(units, depth, x):
    under_way = {}
    for i, unit in enumerate(units):
        for j in range(i, min(i + depth + 1, len(units))):
            if j not in under_way and not units[j].skipped:
                under_way[j] = units[j].gather()
        if not unit.skipped:
            x = one(unit, under_way.pop(i), x)
        under_way[i] = None
    return x


def one(unit, gathered, x):
    weight = gathered.wait()
    return x if unit.skipped else unit.compute(weight, x)
