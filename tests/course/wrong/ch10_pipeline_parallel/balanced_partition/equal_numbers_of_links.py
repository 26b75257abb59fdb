# expect: DTL-VALUE-EQUAL-COUNTS
# says: the costs do not count


def balanced_partition(costs, num_stages):
    if num_stages > len(costs):
        raise ValueError("more stages than links")
    return [k * len(costs) // num_stages for k in range(num_stages + 1)]
