# expect: DTL-MISTAKE
# says: for all stages of a rank together


def memory_cap(num_ranks, num_microbatches, cap):
    """Groups of `cap` micro-batches: forward through all stages, then backward."""
    last = 2 * num_ranks - 1
    placement = [min(stage, last - stage) for stage in range(2 * num_ranks)]
    orders = []
    for rank in range(num_ranks):
        order = []
        for first in range(0, num_microbatches, cap):
            group = range(first, min(first + cap, num_microbatches))
            order += [(stage, "F", k) for stage in (rank, last - rank) for k in group]
            for stage in (last - rank, rank):
                for k in group:
                    order += [(stage, "I", k), (stage, "W", k)]
        orders.append(order)
    return placement, orders
