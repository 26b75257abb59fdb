# expect: DTL-DIFFICULTY
# says: cuts that are improved one by one
# says: should be '10'; it is '12, with


from itertools import pairwise


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    boundaries = [0, len(costs)]
    while len(boundaries) <= num_stages:
        pairs = [(a, b) for a, b in pairwise(boundaries) if b - a > 1]
        start, stop = max(pairs, key=lambda pair: sum(costs[slice(*pair)]))  # the slowest stage is cut in two
        cut = min(range(start + 1, stop), key=lambda c: max(sum(costs[start:c]), sum(costs[c:stop])))
        boundaries = sorted([*boundaries, cut])
    return boundaries
