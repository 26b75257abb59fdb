# expect: DTL-VALUE-BUBBLE
# says: at most 0.21 is expected
# says: Ranks are idle for longer than they work
def memory_cap(num_ranks, num_microbatches, cap):
    """Valid, and no more: nothing works at the same time."""
    placement = tuple(stage % num_ranks for stage in range(2 * num_ranks))
    orders = [[] for _ in range(num_ranks)]
    for k in range(num_microbatches):
        for op, stages in (("F", range(2 * num_ranks)), ("I", range(2 * num_ranks)[::-1])):
            for stage in stages:
                orders[placement[stage]].append((stage, op, k))
                if op == "I":
                    orders[placement[stage]].append((stage, "W", k))
    return placement, orders
