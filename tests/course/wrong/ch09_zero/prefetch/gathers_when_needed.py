# expect: DTL-RULE-NO-PREFETCH
# says: has not been launched


def prefetch(units, depth, x):
    under_way = {}
    for i, unit in enumerate(units):
        for j in range(i, min(i + 1, len(units))):
            if j not in under_way:
                under_way[j] = units[j].gather()
        x = one(unit, under_way.pop(i), x)
        under_way[i] = None
    return x


def one(unit, gathered, x):
    weight = gathered.wait()
    return x if unit.skipped else unit.compute(weight, x)
