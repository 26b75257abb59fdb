# expect: DTL-MISTAKE
# says: a whole backward pass


def memory_cap(num_ranks, num_microbatches, cap):
    placement = [stage % num_ranks for stage in range(2 * num_ranks)]
    orders = []
    for rank in range(num_ranks):
        own = (rank, rank + num_ranks)
        order = []
        for k in range(num_microbatches):
            order += [(stage, "F", k) for stage in own] + [(stage, "B", k) for stage in own[::-1]]
        orders.append(order)
    return placement, orders
