# expect: DTL-MISTAKE
# says: with bound math.inf a worker that has left may start

import math


def may_start(clocks, worker, bound):
    if math.isinf(bound):
        return True
    if clocks[worker] is None:
        return False
    return all(clocks[worker] - c <= bound for c in clocks if c is not None)
