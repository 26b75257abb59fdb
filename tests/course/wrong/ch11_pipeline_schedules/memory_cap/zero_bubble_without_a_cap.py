# expect: DTL-MISTAKE
# says: rank 0 holds up to 4 activations, and 3 are allowed


def memory_cap(num_ranks, num_microbatches, cap):
    """One stage after the other, as many micro-batches at once as ZB-H1 has."""
    placement = [stage // 2 for stage in range(2 * num_ranks)]
    orders = []
    for rank in range(num_ranks):
        order, waiting = [], []

        def do(op, k, order=order, rank=rank):
            stages = (2 * rank, 2 * rank + 1)
            order.extend((stage, op, k) for stage in (stages if op == "F" else stages[::-1]))

        warm_up = min(num_microbatches, num_ranks - rank - 1)
        for k in range(warm_up):
            do("F", k)
        for k in range(num_microbatches):
            if k + warm_up < num_microbatches:
                do("F", k + warm_up)
            do("I", k)
            waiting.append(k)
            if len(waiting) > rank:
                do("W", waiting.pop(0))
        for k in waiting:
            do("W", k)
        orders.append(order)
    return placement, orders
