# expect: DTL-DIFFICULTY
# says: too many ways to try them all
from itertools import combinations, pairwise


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    ways = ([0, *cuts, len(costs)] for cuts in combinations(range(1, len(costs)), num_stages - 1))
    return min(ways, key=lambda way: max(sum(costs[start:stop]) for start, stop in pairwise(way)))
