# expect: DTL-DIFFICULTY
# says: filled one after the other, up to a mean
# says: should be '10'; it is '12, with [0, 2, 3, 4, 7]'


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    mean, boundaries, cost = sum(costs) / num_stages, [0], 0
    for place, one in enumerate(costs):
        stages_left = num_stages - len(boundaries)
        must = len(costs) - place == stages_left
        if stages_left and place > boundaries[-1] and (must or cost + one > mean):
            boundaries.append(place)
            cost = 0
        cost += one
    return [*boundaries, len(costs)]
