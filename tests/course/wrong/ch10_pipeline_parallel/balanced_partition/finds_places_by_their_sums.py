# expect: DTL-DIFFICULTY
# says: a link that costs nothing is one
from itertools import accumulate


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    sums = [0, *accumulate(costs)]
    best = {n: (sums[n], [0, sums[n]]) for n in range(1, len(sums))}
    for stages in range(2, num_stages + 1):
        best = {
            n: min((max(best[cut][0], sums[n] - sums[cut]), [*best[cut][1], sums[n]]) for cut in range(stages - 1, n))
            for n in range(stages, len(sums))
        }
    return [sums.index(one) for one in best[len(costs)][1]]
