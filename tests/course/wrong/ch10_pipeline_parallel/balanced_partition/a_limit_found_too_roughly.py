# expect: DTL-DIFFICULTY
# says: a search for the limit ends too early


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")

    def filled(limit):
        cuts, cost = [0], 0
        for place, one in enumerate(costs):
            if place > cuts[-1] and cost + one > limit:
                cuts.append(place)
                cost = 0
            cost += one
        return cuts

    low, high = max(costs), sum(costs)
    while high - low > 0.01:  # costs in milliseconds, not in seconds
        middle = (low + high) / 2
        low, high = (low, middle) if len(filled(middle)) <= num_stages else (middle, high)
    cuts = filled(high)
    spare = [place for place in range(1, len(costs)) if place not in cuts]
    return [*sorted([*cuts, *spare[: num_stages - len(cuts)]]), len(costs)]
