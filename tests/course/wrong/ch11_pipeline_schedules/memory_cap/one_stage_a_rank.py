# expect: DTL-VALUE-TYPE
# says: of the 2p = 4 stages


def memory_cap(num_ranks, num_microbatches, cap):
    orders = []
    for rank in range(num_ranks):
        order = []
        for k in range(num_microbatches):
            order += [(rank, "F", k), (rank, "I", k), (rank, "W", k)]
        orders.append(order)
    return list(range(num_ranks)), orders
