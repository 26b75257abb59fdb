# expect: DTL-MISTAKE
# says: forever


def memory_cap(num_ranks, num_microbatches, cap):
    """As many forward passes of the first stage as fit, then the others as they come."""
    last = 2 * num_ranks - 1
    placement = [min(stage, last - stage) for stage in range(2 * num_ranks)]
    orders = []
    for rank in range(num_ranks):
        order = []
        warm_up = min(cap, num_microbatches)
        for k in range(warm_up):
            order.append((rank, "F", k))
        for k in range(num_microbatches):
            order += [(last - rank, "I", k), (last - rank, "F", k), (last - rank, "W", k)]
            order += [(rank, "I", k), (rank, "W", k)]
            if k + warm_up < num_microbatches:
                order.append((rank, "F", k + warm_up))
        orders.append(order)
    return placement, orders
