# expect: DTL-RAISED
# says: list index out of range
# says: there are 3 units, and depth is 5


def prefetch(units, depth, x):
    under_way = [units[k].gather() for k in range(depth)]
    for i, unit in enumerate(units):
        if i + depth < len(units):
            under_way.append(units[i + depth].gather())
        x = one(unit, under_way.pop(0), x)
    return x


def one(unit, gathered, x):
    weight = gathered.wait()
    return x if unit.skipped else unit.compute(weight, x)
