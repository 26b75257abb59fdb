from functools import cache
from itertools import accumulate


def balanced_partition(costs, num_stages):
    sums = [0, *accumulate(costs)]
    if num_stages > len(costs):
        raise ValueError(f"{len(costs)} links cannot make {num_stages} stages")

    @cache
    def best(end, stages):
        if stages == 1:
            return sums[end], 0
        return min((max(best(cut, stages - 1)[0], sums[end] - sums[cut]), cut) for cut in range(stages - 1, end))

    boundaries, end = [len(costs)], len(costs)
    for stages in range(num_stages, 0, -1):
        end = best(end, stages)[1]
        boundaries.insert(0, end)
    return boundaries
