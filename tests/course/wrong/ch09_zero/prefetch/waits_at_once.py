# expect: DTL-RULE-WAIT-EARLY
# says: waited for before unit


def prefetch(units, depth, x):
    under_way = {}
    for i, unit in enumerate(units):
        for j in range(i, min(i + depth + 1, len(units))):
            if j not in under_way:
                under_way[j] = units[j].gather().wait()
        x = one(unit, under_way.pop(i), x)
        under_way[i] = None
    return x


def one(unit, gathered, x):
    weight = gathered
    return x if unit.skipped else unit.compute(weight, x)
