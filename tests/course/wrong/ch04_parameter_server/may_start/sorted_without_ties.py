# expect: DTL-MISTAKE
# says: of several slowest workers only the first may start

# The slowest is the first of a sorted list, and there is only one first.


def may_start(clocks, worker, bound):
    order = sorted((clock, number) for number, clock in enumerate(clocks) if clock is not None)
    slowest, first = order[0]
    if clocks[worker] is None:
        return False
    return worker == first or 1 <= clocks[worker] - slowest <= bound
