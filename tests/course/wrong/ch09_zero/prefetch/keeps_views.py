# expect: DTL-MISTAKE
# says: copies or views of weights that were used are kept

from collections import deque


def prefetch(units, depth, x):
    under_way, kept = deque(), []
    for i, unit in enumerate(units):
        while len(under_way) <= depth and i + len(under_way) < len(units):
            under_way.append(units[i + len(under_way)].gather())
        weight = under_way.popleft().wait()
        kept.append(weight[:])
        if not unit.skipped:
            x = unit.compute(weight, x)
        del weight
    return x
