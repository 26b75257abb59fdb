# expect: DTL-DIFFICULTY
# says: there are S stages also where fewer would be as fast
# says: it is '[0, 3, 4]'


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    sums = [sum(costs[i:j]) for i in range(len(costs)) for j in range(i + 1, len(costs) + 1)]
    for limit in sorted(set(sums)):
        boundaries, cost = [0], 0
        for place, one in enumerate(costs):
            if cost + one > limit and place:
                boundaries.append(place)
                cost = 0
            cost += one
        if limit >= max(costs) and len(boundaries) <= num_stages:
            return [*boundaries, len(costs)]
