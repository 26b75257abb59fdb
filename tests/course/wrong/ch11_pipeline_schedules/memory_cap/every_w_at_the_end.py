# expect: DTL-MISTAKE
# says: it is live until the W


def memory_cap(num_ranks, num_microbatches, cap):
    last = 2 * num_ranks - 1
    placement = [min(stage, last - stage) for stage in range(2 * num_ranks)]
    orders = []
    for rank in range(num_ranks):
        order = []
        for k in range(num_microbatches):
            order += [(rank, "F", k), (last - rank, "F", k), (last - rank, "I", k), (rank, "I", k)]
        order += [(stage, "W", k) for k in range(num_microbatches) for stage in (last - rank, rank)]
        orders.append(order)
    return placement, orders
