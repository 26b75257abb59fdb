# expect: DTL-RULE-WEIGHT-HELD
# says: still held when unit


def prefetch(units, depth, x):
    under_way = {}
    for i, unit in enumerate(units):
        for j in range(i, min(i + depth + 1, len(units))):
            if j not in under_way:
                under_way[j] = units[j].gather()
        weight = under_way.pop(i).wait()
        x = x if unit.skipped else unit.compute(weight, x)
        under_way[i] = None
    return x
