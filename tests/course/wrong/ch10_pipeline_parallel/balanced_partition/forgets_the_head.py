# expect: DTL-VALUE-ENDS-IGNORED
# says: the head, the last link, is left out


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    blocks = costs if len(costs) == 1 else [*costs[:-1], 0]
    best = {n: (sum(blocks[:n]), [0, n]) for n in range(1, len(blocks) + 1)}
    for stages in range(2, num_stages + 1):
        best = {
            n: min((max(best[cut][0], sum(blocks[cut:n])), [*best[cut][1], n]) for cut in range(stages - 1, n))
            for n in range(stages, len(blocks) + 1)
        }
    return best[len(blocks)][1]
