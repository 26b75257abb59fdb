# expect: DTL-MUTATED
# says: rank 0 changed what it was given: costs


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    best = {n: (sum(costs[:n]), [0, n]) for n in range(1, len(costs) + 1)}
    for stages in range(2, num_stages + 1):
        best = {
            n: min((max(best[cut][0], sum(costs[cut:n])), [*best[cut][1], n]) for cut in range(stages - 1, n))
            for n in range(stages, len(costs) + 1)
        }
    num_links = 0
    while costs:
        costs.pop()
        num_links += 1
    return best[num_links][1]
