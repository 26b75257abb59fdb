def balanced_partition(costs, num_stages):
    n = len(costs)
    if num_stages > n:
        raise ValueError("there are fewer links than stages")
    for limit in sorted({sum(costs[i:j]) for i in range(n) for j in range(i + 1, n + 1)}):
        if limit >= max(costs) and (cuts := stages(costs, limit, num_stages)):
            return cuts


def stages(costs, limit, num_stages):
    cuts, cost = [0], 0
    for place, one in enumerate(costs):
        if place and (cost + one > limit or len(costs) - place == num_stages - len(cuts)):
            cuts.append(place)
            cost = 0
        cost += one
    return (*cuts, len(costs)) if len(cuts) == num_stages else None
